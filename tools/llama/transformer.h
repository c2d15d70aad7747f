// SPDX-License-Identifier: Apache-2.0
//
// The Llama architecture on the CPU: RMSNorm, rotary positions, grouped-query attention, SwiGLU.
//
// K (after rotary encoding) and V are rounded to bf16 when they are written to the cache, and
// attention reads them from there, also those of the tokens being computed. Every row's sums are
// independent of the rows computed with it. Hence prefill equals decode bit for bit, however the
// tokens were cut into calls, and a cache that was stored and restored continues with the same
// bits.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/llama/arithmetic.h"
#include "tools/llama/checkpoint.h"
#include "tools/llama/kv_cache.h"

namespace cairn::llama {

inline constexpr double kRopeTheta = 10000.0;

// The rotary frequencies of llama2.c, theta^(-2i/head_dim). Elements 2i and 2i+1 of a head turn by
// the angle position * frequency[i]. A storage engine that moves K to other positions needs exactly
// these.
std::vector<float> InverseFrequencies(int head_dim);

enum class LogitsOf { kNoRow, kLastRow, kAllRows };

// `Scalar` (float or double) is the type of every weight, activation and sum; the cache is bf16
// either way.
//
// Holds a packed copy of the weights and scratch memory that grows with the longest context seen:
// one thread at a time.
template <typename Scalar>
class Transformer {
 public:
  explicit Transformer(const Checkpoint& checkpoint);

  const Config& config() const { return config_; }

  // Computes `tokens` at positions `start_position`, +1, ...: writes their K and V to `*cache`,
  // whose earlier positions are taken as they are, and returns the logits of the rows asked for,
  // [row][vocab_size], valid until the next call. Throws std::out_of_range if a token is outside
  // the vocabulary or a position outside the cache; nothing is written then.
  std::span<const Scalar> Forward(std::span<const int32_t> tokens, int start_position,
                                  LogitsOf rows, KvCache* cache);

  // The same for rows at any ascending positions, such as the ones that a partly reused context
  // needs recomputed. Each row attends to everything in the cache from 0 to its own position.
  std::span<const Scalar> ForwardAt(std::span<const int32_t> tokens, std::span<const int> positions,
                                    LogitsOf rows, KvCache* cache);

 private:
  struct Layer {
    std::vector<Scalar> attention_norm, ffn_norm;
    Matrix<Scalar> wq, wk, wv, wo, w1, w2, w3;
  };

  void Check(std::span<const int32_t> tokens, std::span<const int> positions,
             const KvCache& cache) const;
  void ForwardBlock(std::span<const int32_t> tokens, std::span<const int> positions,
                    KvCache* cache);
  void Attend(const Layer& layer, int layer_index, std::span<const int> positions, KvCache* cache);
  void AttendHeads(int layer_index, int kv_head, std::span<const int> positions,
                   const KvCache& cache);
  void WidenHead(int layer_index, int kv_head, size_t context, const KvCache& cache);
  void FeedForward(const Layer& layer, size_t rows);
  void Rotate(Scalar* heads, size_t head_count, int position) const;
  void Normalize(const std::vector<Scalar>& weight, size_t rows);
  void AddToStream(size_t rows);

  Config config_;
  std::vector<float> inverse_frequencies_;
  std::vector<Scalar> embedding_;
  std::vector<Layer> layers_;
  std::vector<Scalar> final_norm_;
  Matrix<Scalar> classifier_;

  // Scratch of one block of rows.
  std::vector<Scalar> stream_;      // [row][dim], the residual stream
  std::vector<Scalar> normalized_;  // [row][dim], what a part or the classifier reads
  std::vector<Scalar> change_;      // [row][dim], what a part adds to the stream
  std::vector<Scalar> q_, k_, v_;   // [row][head][head_dim]
  std::vector<Scalar> mixed_;       // [row][head][head_dim], output of attention
  std::vector<Scalar> gate_, up_;   // [row][hidden_dim]
  Matrix<Scalar> keys_;             // [position][head_dim], one head of the cache, widened
  Matrix<Scalar> values_;           // [head_dim][position], likewise
  std::vector<Scalar> widened_;     // [head_dim], one row on its way there
  std::vector<Scalar> scores_;      // [head of the group][position]
  std::vector<Scalar> logits_;
};

extern template class Transformer<float>;
extern template class Transformer<double>;

}  // namespace cairn::llama
