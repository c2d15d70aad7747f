// SPDX-License-Identifier: Apache-2.0
//
// A llama2.c checkpoint (version 0, the one that run.c reads), in memory.
//
// The file is seven little-endian int32 (dim, hidden_dim, layers, heads, kv_heads, vocabulary size,
// positions), then float32 tensors without any framing:
//
//   embedding [vocab][dim]
//   attention_norm [layer][dim]
//   wq [layer][heads*head_dim][dim]
//   wk, wv [layer][kv_heads*head_dim][dim]
//   wo [layer][dim][heads*head_dim]
//   ffn_norm [layer][dim]
//   w1 [layer][hidden][dim]
//   w2 [layer][dim][hidden]
//   w3 [layer][hidden][dim]
//   final_norm [dim]
//   two rotary tables [positions][head_dim/2], which every reader skips and computes itself
//   classifier [vocab][dim], only if the vocabulary size is negative; else it is the embedding

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cairn::llama {

struct Config {
  int dim = 0;
  int hidden_dim = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int vocab_size = 0;
  int max_positions = 0;
  bool shared_classifier = true;

  int head_dim() const { return dim / heads; }
  int kv_dim() const { return kv_heads * head_dim(); }
};

// Immutable after loading, hence safe to share between threads.
class Checkpoint {
 public:
  // Reads and validates the whole file: header fields, exact size, every weight finite. On failure
  // returns nothing and sets `*error` to one line that names the file, the field or offset, and the
  // expected and actual value.
  static std::optional<Checkpoint> Load(const std::string& path, std::string* error);

  const Config& config() const { return config_; }
  // Weights in the file, without the rotary tables.
  size_t parameter_count() const;

  // Matrices are row-major with one row per output.
  std::span<const float> embedding() const { return View(embedding_, 0); }
  std::span<const float> attention_norm(int layer) const { return View(attention_norm_, layer); }
  std::span<const float> wq(int layer) const { return View(wq_, layer); }
  std::span<const float> wk(int layer) const { return View(wk_, layer); }
  std::span<const float> wv(int layer) const { return View(wv_, layer); }
  std::span<const float> wo(int layer) const { return View(wo_, layer); }
  std::span<const float> ffn_norm(int layer) const { return View(ffn_norm_, layer); }
  std::span<const float> w1(int layer) const { return View(w1_, layer); }
  std::span<const float> w2(int layer) const { return View(w2_, layer); }
  std::span<const float> w3(int layer) const { return View(w3_, layer); }
  std::span<const float> final_norm() const { return View(final_norm_, 0); }
  std::span<const float> classifier() const { return View(classifier_, 0); }

 private:
  // Where one kind of tensor lies in `values_`, in floats; `size` is that of one layer.
  struct Tensor {
    size_t begin = 0;
    size_t size = 0;
  };

  std::span<const float> View(const Tensor& tensor, int layer) const {
    return {values_.data() + tensor.begin + static_cast<size_t>(layer) * tensor.size, tensor.size};
  }
  // Lays the tensors out by `config_`; returns the number of floats that the file must hold.
  size_t LayOut();

  Config config_;
  Tensor embedding_, attention_norm_, wq_, wk_, wv_, wo_, ffn_norm_, w1_, w2_, w3_, final_norm_,
      rotary_, classifier_;
  std::vector<float> values_;
};

}  // namespace cairn::llama
