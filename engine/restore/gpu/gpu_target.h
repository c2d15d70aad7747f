// SPDX-License-Identifier: Apache-2.0
//
// A GPU of a store, and what restores into it share: the ring, memory for views, pinned buffers to
// read into, and pinned memory for pages. Nothing else of the device is taken before the first
// restore into it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "base/core/block_arena.h"
#include "base/core/memory_budget.h"
#include "base/io/world.h"
#include "cairn/gpu.h"
#include "engine/device/device_staging.h"
#include "engine/restore/gpu/gpu_ring.h"
#include "engine/restore/gpu/pinned_cache.h"
#include "engine/restore/plan/read_pool.h"

namespace cairn::engine {

class GpuTarget {
 public:
  // `bytes_max`: see ReadPool. `keep_bytes` of returned buffers are kept; they are charged to the
  // budget as long as this lives.
  GpuTarget(const Gpu& gpu, const io::World& world, uint64_t bytes_max, uint64_t keep_bytes,
            MemoryBudget* budget);
  ~GpuTarget();
  GpuTarget(const GpuTarget&) = delete;
  GpuTarget& operator=(const GpuTarget&) = delete;

  uint32_t ordinal() const { return gpu_.ordinal(); }
  const GpuWaits* waits() const { return &waits_; }
  GpuRing* ring() { return &ring_; }
  DeviceStaging* staging() { return &staging_; }
  ReadPool* pinned() { return &pool_; }
  // Frames of one launch, so that all slots together keep to GpuOptions::processors_max.
  uint32_t frames_of_launch() const { return frames_of_launch_; }
  // Sets up pages in memory that stays pinned, if the GPU's options ask for it. After an error
  // there is no cache. Call before other threads use this.
  Status OpenCache(const Allocator& allocator);
  PinnedCache* cache() { return cache_.get(); }  // Null: there is none.
  // At the end of the store, which handles may outlive by far: frees the pinned buffers that are
  // kept.
  void Clear();

 private:
  static void* Allocate(void* context, size_t bytes, size_t alignment);
  static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment);

  const Gpu gpu_;
  MemoryBudget* const budget_;
  const uint64_t keep_bytes_;
  const uint32_t frames_of_launch_;
  const GpuWaits waits_;
  GpuRing ring_;
  DeviceStaging staging_;
  BlockArena arena_;
  ReadPool pool_;
  std::unique_ptr<PinnedCache> cache_;
};

}  // namespace cairn::engine
