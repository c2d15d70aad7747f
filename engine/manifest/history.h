// SPDX-License-Identifier: Apache-2.0
//
// Which history of a store a directory holds. A copy is the same store at an earlier time: its id,
// and so the seed of every checksum, is the same, and when both are written to they give the same
// numbers to other segments and tables. So a history has a name of its own: 16 random bytes, drawn
// at every opening for writing and for every copy, and kept in MANIFEST with those that it goes on
// from. In one history, and in what goes on from it, nothing that has a number is ever another
// thing.
//
// A follower compares the point up to which it has seen a store with what it finds later: what it
// knows of files holds as long as the history is the same, or goes on from that point.
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

// A history up to a sequence, and with tables of numbers below this one. On disk as it stands.
struct HistoryPoint {
  HistoryId history;
  uint64_t sequence = 0;
  uint64_t next_file_number = 0;
  bool operator==(const HistoryPoint&) const = default;
};
static_assert(sizeof(HistoryPoint) == 32);

// What a MANIFEST says: its own name, and where those ended that it goes on from, newest first.
struct History {
  // Of so many openings and copies a reader may miss all but one; 4 KiB.
  static constexpr size_t kEarlierMax = 128;

  HistoryId id;
  std::vector<HistoryPoint> earlier;

  // What goes on from here: `next`, when this one ends at `end` (whose name is not looked at).
  void GoOn(const HistoryId& next, HistoryPoint end);
  // Whether all that was seen up to there is so here, too.
  bool Holds(const HistoryPoint& seen) const;
};

}  // namespace cairn::engine
