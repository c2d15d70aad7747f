// SPDX-License-Identifier: Apache-2.0
//
// Which history of a store a directory holds. A copy is the same store at an earlier time: its id,
// and so the seed of every checksum, is the same, and when both are written to they give the same
// numbers to different segments and tables. So a history has a name of its own: 16 random bytes,
// drawn at every opening for writing and for every copy, and kept in MANIFEST with those of the
// histories that it continues. Within one history, and those that continue it, a number always
// names the same thing.
//
// A follower compares the point up to which it has seen a store with a later one: its knowledge of
// files stays valid if the history is the same, or continues from that point.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/io/world.h"

namespace cairn::engine {

struct HistoryId {
  std::array<std::byte, 16> bytes{};
  bool operator==(const HistoryId&) const = default;
};

HistoryId DrawHistory(io::Scheduler& scheduler);

// A history up to a sequence, with tables of numbers below next_file_number. On disk as it stands.
struct HistoryPoint {
  HistoryId history;
  uint64_t sequence = 0;
  uint64_t next_file_number = 0;
  bool operator==(const HistoryPoint&) const = default;
};
static_assert(sizeof(HistoryPoint) == 32);

// As in a MANIFEST: its own name, and where the histories ended that it continues, newest first.
struct History {
  // A reader may miss all but one of this many openings and copies; 4 KiB.
  static constexpr size_t kEarlierMax = 128;

  HistoryId id;
  std::vector<HistoryPoint> earlier;

  // Continues with `next`, as this one ends at `end` (whose name is ignored).
  void GoOn(const HistoryId& next, HistoryPoint end);
  // Whether everything that was seen up to there is so here, too.
  bool Holds(const HistoryPoint& seen) const;
};

}  // namespace cairn::engine
