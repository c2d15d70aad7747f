// SPDX-License-Identifier: Apache-2.0
//
// How much of each segment of the log is still needed: what a segment may rest for, and when its
// file goes. Positions count with their raw bytes, states with one byte. Part of a Tree: the commit
// lock guards it. No I/O.
//
// Counted are segments from some number on. Those before were written by a library that did not
// count: nothing is known of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace cairn::engine {

struct SegmentUsage {
  uint64_t live_bytes = 0;
  uint64_t kv_extents = 0;       // Pieces in which restores read the KV.
  uint64_t most_live_bytes = 0;  // The most that was ever needed of it.
  bool dirty = false;            // Changed since the last tree flush.
  bool lied = false;             // The index said that less was needed than there was.
};

class SegmentUsages {
 public:
  void CountFrom(uint64_t segment) { counted_from_ = segment; }
  bool Counts(uint64_t segment) const { return segment >= counted_from_; }
  // Null: nothing of it is needed, or it is not counted.
  const SegmentUsage* Find(uint64_t segment) const;
  // Counted ones of which something is needed, or was at the last tree flush.
  const std::map<uint64_t, SegmentUsage>& all() const { return segments_; }

  // Segments below have left the log.
  void SetLogStart(uint64_t segment) { log_start_ = segment; }
  // Bytes that became needless in segments that rest, since this tree was opened; some count twice,
  // when a change was undone.
  uint64_t died_bytes() const { return died_bytes_; }

  // Makes room to count in this many more segments; may throw.
  void Reserve(size_t more);
  // Bytes, in this many pieces of KV, are needed (1) or not any more (-1). Cannot fail. REQUIRES: a
  // segment that is new has got room.
  void Count(uint64_t segment, uint64_t bytes, uint64_t kv_extents, int sign);
  void Load(uint64_t segment, const SegmentUsage& use) { segments_[segment] = use; }
  void MarkFlushed();  // The index has all of it. Cannot fail.

 private:
  using Segments = std::map<uint64_t, SegmentUsage>;
  uint64_t counted_from_ = UINT64_MAX, log_start_ = 0;
  uint64_t died_bytes_ = 0;
  Segments segments_;
  std::vector<Segments::node_type> room_;
};

}  // namespace cairn::engine
