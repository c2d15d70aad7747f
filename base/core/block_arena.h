// SPDX-License-Identifier: Apache-2.0
//
// An allocator in front of another, for large buffers that come and go. It keeps freed buffers and
// lends them again, so that their pages are touched for the first time only once. (The first touch
// of a page costs a fault and clearing it, more than most uses of the page.)
//
// Sizes are rounded up by an eighth at most (base/core/size_classes.h), and a block is lent again
// for its own size only. At most `keep_bytes` are kept, those freed last, so that present work does
// not lack memory because of past work. Trim, called now and then, frees blocks that nobody took
// since the last call. Buffers smaller than kArenaBlockMin, and those aligned to more than a block
// of the disk, go straight to the other allocator.
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
  Allocator from() const;  // The other allocator.
  void Trim();
  // Frees everything that is kept, and keeps nothing from here on.
  void Clear();
  uint64_t kept_bytes() const;

 private:
  class State;
  State* const state_;
};

}  // namespace cairn
