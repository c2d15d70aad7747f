// SPDX-License-Identifier: Apache-2.0
//
// Memory that is pinned for one device as long as this lives: registered once, since registering
// costs something for each page. Lent in runs of adjacent cells of kPinnedCellBytes. The search
// goes on where the last one ended, so runs that were taken together lie together, are freed
// together, and leave a large hole.
//
// Thread-safe; a short lock. Giving back needs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/align.h"
#include "base/core/aligned_buffer.h"
#include "base/core/mutex.h"
#include "engine/config/constants.h"
#include "gpu/device.h"

namespace cairn::engine {

class PinnedArena {
 public:
  // kOutOfMemory when the allocator has none, or when the device refuses to pin it.
  static Result<std::unique_ptr<PinnedArena>> Make(std::shared_ptr<gpu::Device> device,
                                                   const Allocator& allocator, uint64_t bytes);
  ~PinnedArena();  // No run is lent.
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  // Aligned to cells. Null: no free run of cells is that long.
  std::byte* Take(uint64_t bytes);
  void Return(std::byte* at);

  static uint64_t CostOf(uint64_t bytes) { return AlignUp(bytes, kPinnedCellBytes); }
  uint64_t bytes() const { return memory_.size(); }
  uint64_t used_bytes() const;

 private:
  PinnedArena(std::shared_ptr<gpu::Device> device, AlignedBuffer memory);

  const std::shared_ptr<gpu::Device> device_;
  const AlignedBuffer memory_;
  const uint32_t cells_;
  bool registered_ = false;
  mutable Mutex mutex_;
  // By the first cell of a lent run: its length. 0: free, or within a run.
  std::vector<uint32_t> runs_ CAIRN_GUARDED_BY(mutex_);
  uint32_t next_ CAIRN_GUARDED_BY(mutex_) = 0;  // Never a cell within a run.
  uint32_t used_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::engine
