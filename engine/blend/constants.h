// SPDX-License-Identifier: Apache-2.0
//
// Numbers of this room, with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::engine {

// Runs of computed tokens that are less than this far apart are one: a forward call more costs more
// than so few tokens.
inline constexpr uint64_t kJoinedRuns = 8;

// Ids that are read first on each side of a piece to see how far ids stay similar, and that are
// read together at most for one side.
inline constexpr uint64_t kExtendReach = 256;
inline constexpr uint64_t kExtendReachMax = 1u << 16;

// How often a plan is made again because the tree that it was made from is another one by now: a
// follower that is refreshed, a log that failed.
inline constexpr size_t kPlanRounds = 8;

// Bases are compared this closely. A base that is computed back from frequencies in fp32 differs by
// some 1e-5.
inline constexpr double kThetaTolerance = 1e-3;

// Pieces that are looked at, held or leased while the commit lock is held: less than 1 ms.
inline constexpr size_t kPiecesAtOnce = 128;

// Positions that are compared with a model's rotation: some ids, so that one that was computed
// otherwise is noticed, each at positions this far apart at least, so that bases differ.
inline constexpr size_t kCheckedSamples = 8;
inline constexpr uint64_t kCheckedDistanceMin = 16;
// Ids of a prompt that are looked through for some that stand at two places: 0.3 ms. Any text
// repeats some of its ids sooner.
inline constexpr uint64_t kCheckedIds = 1u << 14;

// Bases that a wrong description is tried with, so that the message can name the right one: those
// of models that are in use.
inline constexpr double kCommonBases[] = {1e4, 1e5, 1.5e5, 5e5, 1e6, 5e6, 1e7};

}  // namespace cairn::engine
