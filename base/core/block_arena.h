// SPDX-License-Identifier: Apache-2.0
//
// An allocator in front of another, for large buffers that come and go: what is given back is kept
// and lent again, so that its pages are touched for the first time once. (The first touch of a page
// costs a fault and the clearing of it, more than most uses of the page.)
//
// Sizes are rounded up by an eighth at most (base/core/size_classes.h), and a block is lent again
// for its own size only. At most `keep_bytes` are kept, those that came back last, so that what is
// done now does not go without for what was done before. Trim, called now and then, gives back what
// nobody took since the last call. Smaller buffers than kArenaBlockMin, and those aligned to more
// than a block of the disk, go straight to the other allocator.
//
// Thread-safe; a short lock, not held around the other allocator. Buffers may outlive the arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/allocator.h"

namespace cairn {

inline constexpr size_t kArenaBlockMin = size_t{256} << 10;

class BlockArena {
 public:
  BlockArena(const Allocator& from, uint64_t keep_bytes);
  ~BlockArena();  // As Clear.
  BlockArena(const BlockArena&) = delete;
  BlockArena& operator=(const BlockArena&) = delete;

  Allocator allocator() const;
  Allocator from() const;  // The other one.
  void Trim();
  // Gives back all that is kept, and keeps nothing from here on.
  void Clear();
  uint64_t kept_bytes() const;

 private:
  class State;
  State* const state_;
};

}  // namespace cairn
