// SPDX-License-Identifier: Apache-2.0
//
// Memory in which KV waits to be appended: drafts, and one-token appends that are being coalesced.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/memory_budget.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"
#include "engine/device/gpu_source.h"

namespace cairn::engine {

// A bounded amount of staging memory. Thread-safe.
class StagingPool {
 public:
  StagingPool(Allocator allocator, uint64_t max_bytes, MemoryBudget* budget)
      : allocator_(allocator), max_bytes_(max_bytes), budget_(budget) {}
  // kBusy when it is used up, kOutOfMemory when the allocator fails.
  Result<AlignedBuffer> Take(uint64_t bytes);
  void Return(AlignedBuffer buffer);
  uint64_t max_bytes() const { return max_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  const Allocator allocator_;
  const uint64_t max_bytes_;
  MemoryBudget* const budget_;
  std::atomic<uint64_t> used_bytes_{0};
};

// KV of `capacity` positions for all groups of a model that keep positions and not states, each
// group from its own first position on, in canonical order. Puts of different (group, layer,
// positions) may run concurrently.
class KvStaging {
 public:
  static Result<std::unique_ptr<KvStaging>> Make(StagingPool* pool,
                                                 std::shared_ptr<const ModelSpec> model,
                                                 std::vector<uint64_t> positions,
                                                 uint64_t capacity);
  ~KvStaging();

  // Copies the part of the (validated) view that belongs to one layer. `base_index`: index of its
  // layer base.
  void Put(const GroupView& view, uint32_t layer, uint32_t base_index);
  // The same from the memory of a GPU. `view` is the only one of the source, with one layer.
  Status PutFromGpu(const GpuSource& source, const GroupView& view, uint32_t layer);
  // A view of the first `count` positions of a group; lives as long as this.
  GroupView View(uint32_t group, uint64_t count) const;
  uint64_t position(uint32_t group) const { return positions_[group]; }
  uint64_t capacity() const { return capacity_; }
  const ModelSpec& model() const { return *model_; }

 private:
  KvStaging() = default;
  struct PlaneMemory {
    std::vector<std::byte*> bases;  // One a layer.
    PlaneView view;
  };
  StagingPool* pool_ = nullptr;
  std::shared_ptr<const ModelSpec> model_;
  std::vector<uint64_t> positions_;  // By group.
  uint64_t capacity_ = 0;
  AlignedBuffer buffer_;
  std::vector<std::vector<PlaneMemory>> memory_;     // By group, plane.
  std::vector<std::vector<PlaneView>> plane_views_;  // By group.
};

}  // namespace cairn::engine
