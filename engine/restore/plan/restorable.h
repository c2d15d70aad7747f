// SPDX-License-Identifier: Apache-2.0
//
// How far a branch can be restored: to a position at which every group has what its retention rule
// asks for (engine/tree/memory/retention.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// The present stretches of a lane of a branch, from the end backwards. Walks the path at most once.
// REQUIRES: the path stays in memory and does not change.
class PresentRuns {
 public:
  PresentRuns(const Tree& tree, const Head& head, uint32_t lane, uint64_t end);
  struct Run {
    uint64_t begin = 0, end = 0;
  };
  // Returns the last range that begins below `limit`, clipped to it, or none. Limits must not
  // increase.
  std::optional<Run> Below(uint64_t limit);

 private:
  struct Piece {
    Run run;
    bool present = false;
  };
  std::optional<Piece> NextPiece();

  static constexpr size_t kNoExtentLookedUp = SIZE_MAX;
  const Tree& tree_;
  const Node* node_;
  const uint32_t lane_;
  uint64_t limit_;                     // Positions at and behind it were examined.
  size_t extent_ = kNoExtentLookedUp;  // In node_, behind the next one.
  Run run_;
};

// Not a position.
inline constexpr uint64_t kGroupIsNotNeeded = UINT64_MAX;

// Under the commit lock. The largest length <= at_most at which every group has what it needs.
// Positions below from[group] count as present; groups with kGroupIsNotNeeded are not asked.
// REQUIRES: at_most <= the branch's length.
uint64_t RestorableLength(const Tree& tree, const Head& head, uint64_t at_most,
                          std::span<const uint64_t> from);
// For every group that is not optional, from 0 on.
uint64_t RestorableLength(const Tree& tree, const Head& head, uint64_t at_most);

}  // namespace cairn::engine
