// SPDX-License-Identifier: Apache-2.0
//
// An allocator of frames in front of another: frames of one size class lie side by side in slabs,
// so that a freed frame leaves its place to the next one. Then nothing is allocated, no page is
// touched for the first time, and a slab is large enough for huge pages.
//
//   slab:   [ cell | frame | cell | frame | ... ]     all of one size class
//   cell:   64 bytes: which slab it is, and the next free one; so neighbouring frames begin at
//           different offsets in their pages, and copies between them do not alias
//
// Size classes are those of base/core/size_classes.h. Memory smaller than kSlabFrameMin, larger
// than half a slab, or aligned to more than a cell comes straight from the other allocator.
//
// An empty slab is kept while all free places together are at most `keep_bytes`; Trim, called now
// and then, frees those that nobody used since the last call. Free places of other slabs stay:
// frames are not moved.
//
// Thread-safe; a short lock, not held around the other allocator. Frames may outlive the arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/allocator.h"

namespace cairn {

inline constexpr size_t kSlabFrameMin = size_t{4} << 10;
inline constexpr size_t kSlabCell = 64;

class SlabArena {
 public:
  SlabArena(const Allocator& from, size_t slab_bytes, uint64_t keep_bytes);
  ~SlabArena();  // As Clear.
  SlabArena(const SlabArena&) = delete;
  SlabArena& operator=(const SlabArena&) = delete;

  Allocator allocator() const;
  // Memory that a frame of this size takes.
  size_t CostOf(size_t bytes) const;
  void Trim();
  // Frees all slabs without frames, and keeps none from here on.
  void Clear();
  uint64_t kept_bytes() const;    // Slabs without frames.
  uint64_t unused_bytes() const;  // Free places, those of kept slabs among them.

 private:
  class State;
  State* const state_;
};

}  // namespace cairn
