// SPDX-License-Identifier: Apache-2.0
//
// The small model's KV cache, as a store sees it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "tools/llama/checkpoint.h"
#include "tools/llama/kv_cache.h"
#include "tools/llama/transformer.h"

namespace cairn::demo {

// The group that all layers of the model are.
inline LayerGroup GroupOf(const llama::Config& config) {
  LayerGroup group = LayerGroup::FullAttention(
      static_cast<uint32_t>(config.layers), static_cast<uint32_t>(config.kv_heads),
      static_cast<uint32_t>(config.head_dim()), Dtype::kBf16);
  group.planes[0].rotary.pairing = RotaryPairing::kAdjacent;
  group.inv_freq = llama::InverseFrequencies(config.head_dim());
  return group;
}

// Positions [begin, end) of a cache. Owns the arrays that the view names; the cache stays the
// caller's.
class CacheView {
 public:
  CacheView(llama::KvCache* cache, int begin, int end) {
    for (int layer = 0; layer < cache->layers(); ++layer) {
      k_layers_.push_back(reinterpret_cast<std::byte*>(cache->K(layer, begin, 0)));
      v_layers_.push_back(reinterpret_cast<std::byte*>(cache->V(layer, begin, 0)));
    }
    planes_ = {Plane(*cache, k_layers_), Plane(*cache, v_layers_)};
    group_.position = static_cast<uint64_t>(begin);
    group_.count = static_cast<uint64_t>(end - begin);
    group_.planes = planes_;
    view_.groups = std::span(&group_, 1);
  }
  CacheView(const CacheView&) = delete;  // The view points into this object.
  CacheView& operator=(const CacheView&) = delete;
  const KvView& view() const { return view_; }

 private:
  static PlaneView Plane(const llama::KvCache& cache, const std::vector<std::byte*>& layers) {
    return {.layer_bases = layers,
            .block_stride = 0,
            .token_stride = static_cast<int64_t>(cache.position_stride() * sizeof(uint16_t)),
            .head_stride = static_cast<int64_t>(cache.head_stride() * sizeof(uint16_t)),
            .element_stride = 0};
  }

  std::vector<std::byte*> k_layers_, v_layers_;
  std::array<PlaneView, 2> planes_;
  GroupView group_;
  KvView view_;
};

}  // namespace cairn::demo
