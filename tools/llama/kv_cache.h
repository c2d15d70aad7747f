// SPDX-License-Identifier: Apache-2.0
//
// The KV cache of one sequence: K (after rotary encoding) and V of every position, as bf16.
//
// Both planes are contiguous, [layer][position][kv_head][head_dim]; the strides below, in elements,
// describe them to a storage engine that gathers from or scatters into them. Attention reads this
// memory, so a cache whose bytes were saved and restored continues exactly as the original would
// have.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/llama/checkpoint.h"

namespace cairn::llama {

// Not synchronised: one thread at a time. The memory is allocated once and stays where it is.
class KvCache {
 public:
  // `max_positions` may be smaller than the model's, to save memory, or larger, beyond what it was
  // trained for.
  KvCache(const Config& config, int max_positions)
      : layers_(config.layers),
        kv_heads_(config.kv_heads),
        head_dim_(config.head_dim()),
        max_positions_(max_positions),
        k_(static_cast<size_t>(layers_) * layer_stride()),
        v_(k_.size()) {}

  int layers() const { return layers_; }
  int kv_heads() const { return kv_heads_; }
  int head_dim() const { return head_dim_; }
  int max_positions() const { return max_positions_; }

  size_t head_stride() const { return static_cast<size_t>(head_dim_); }
  size_t position_stride() const { return static_cast<size_t>(kv_heads_) * head_stride(); }
  size_t layer_stride() const { return static_cast<size_t>(max_positions_) * position_stride(); }
  size_t size_bytes() const { return (k_.size() + v_.size()) * sizeof(uint16_t); }

  // The head_dim elements of one head at one position.
  uint16_t* K(int layer, int position, int kv_head) {
    return k_.data() + Index(layer, position, kv_head);
  }
  uint16_t* V(int layer, int position, int kv_head) {
    return v_.data() + Index(layer, position, kv_head);
  }
  const uint16_t* K(int layer, int position, int kv_head) const {
    return k_.data() + Index(layer, position, kv_head);
  }
  const uint16_t* V(int layer, int position, int kv_head) const {
    return v_.data() + Index(layer, position, kv_head);
  }

 private:
  size_t Index(int layer, int position, int kv_head) const {
    return static_cast<size_t>(layer) * layer_stride() +
           static_cast<size_t>(position) * position_stride() +
           static_cast<size_t>(kv_head) * head_stride();
  }

  int layers_;
  int kv_heads_;
  int head_dim_;
  int max_positions_;
  std::vector<uint16_t> k_;
  std::vector<uint16_t> v_;
};

}  // namespace cairn::llama
