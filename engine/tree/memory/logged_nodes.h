// SPDX-License-Identifier: Apache-2.0
//
// Which nodes have content in which segment of the log, as logged since the last tree flush. The
// index has the rest (L records), so that a seal of the oldest segment finds all that lies in it.
// Part of a Tree: the commit lock guards it.
//
// A seal takes time, and tree flushes go on meanwhile. So:
//   Keep      the entries are about to be sealed. Tree flushes put them into the index, with
//             entries that come meanwhile, and keep all of them here.
//   Forget    those of some segments were sealed. The L records of these are deleted, also of
//             entries that came meanwhile: the next tree flush puts those again.
//   Release   the seal was given up: the index has what was flushed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cairn::engine {

// Segments `first` to `last`, but those in `but`, which ascends.
struct SegmentSet {
  uint64_t first = 1, last = UINT64_MAX;
  std::vector<uint64_t> but{};

  bool Contains(uint64_t segment) const {
    return segment >= first && segment <= last &&
           !std::binary_search(but.begin(), but.end(), segment);
  }
};

class LoggedNodes {
 public:
  using Entry = std::pair<uint64_t, uint64_t>;  // {segment, node}

  void Reserve(size_t more);
  void Add(uint64_t segment, uint64_t node) { entries_.emplace_back(segment, node); }
  void Add(std::span<const Entry> entries);

  // In log order; some twice. Those since the last tree flush, or while entries are kept, since
  // Keep.
  std::span<const Entry> entries() const { return entries_; }

  void Keep();
  // The entries of these segments that were here at Keep were sealed. The next tree flush must
  // delete the L records of the segments before it puts.
  void Forget(const SegmentSet& segments);
  // The seal that Keep was for was given up, or has ended and Forget was called.
  void Release();

  // Sorted, each once: what a tree flush has to put.
  std::vector<Entry> Unflushed() const;
  void MarkFlushed();  // The index has all of it. Cannot fail.

 private:
  std::vector<Entry> entries_;
  bool keep_ = false;
  size_t kept_ = 0;     // Entries at Keep...
  size_t flushed_ = 0;  // ...and those that the index got since.
};

}  // namespace cairn::engine
