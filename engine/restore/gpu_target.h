// SPDX-License-Identifier: Apache-2.0
//
// A GPU of a store: the ring that restores into it share, and pinned buffers to read into. Nothing
// of the device is taken before the first restore that goes there.
#pragma once

#include <cstdint>
#include <memory>

#include "base/core/block_arena.h"
#include "base/core/memory_budget.h"
#include "base/io/world.h"
#include "cairn/gpu.h"
#include "engine/restore/gpu_ring.h"
#include "engine/restore/read_pool.h"

namespace cairn::engine {

class GpuTarget {
 public:
  // `bytes_max`: see ReadPool. Of buffers that came back `keep_bytes` are kept, which are taken
  // from the budget as long as this lives.
  GpuTarget(const Gpu& gpu, const io::World& world, uint64_t bytes_max, uint64_t keep_bytes,
            MemoryBudget* budget);
  ~GpuTarget();
  GpuTarget(const GpuTarget&) = delete;
  GpuTarget& operator=(const GpuTarget&) = delete;

  uint32_t ordinal() const { return gpu_.ordinal(); }
  GpuRing* ring() { return &ring_; }
  ReadPool* pinned() { return &pool_; }
  void Clear();  // Gives back what is kept for the next restore.

 private:
  static void* Allocate(void* context, size_t bytes, size_t alignment);
  static void Deallocate(void* context, void* memory, size_t bytes, size_t alignment);

  const Gpu gpu_;
  MemoryBudget* const budget_;
  const uint64_t keep_bytes_;
  GpuRing ring_;
  BlockArena arena_;
  ReadPool pool_;
};

}  // namespace cairn::engine
