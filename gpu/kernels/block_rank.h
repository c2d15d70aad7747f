// SPDX-License-Identifier: Apache-2.0
//
// exact. Ranks among the threads of a block: how many before this one vote yes. All threads of the
// block take part, as often as each other.
#pragma once

#include <cstdint>

#include "gpu/lane.h"

namespace cairn::gpu {

// The most questions that one call answers.
inline constexpr uint32_t kRanks = 2;
// The shared memory that it takes of a block.
inline constexpr uint32_t kRankBytes = kRanks * (kMaxThreads / kWarp) * sizeof(uint32_t);

// Counts on from round to round, in the order of threads within each.
template <typename Lane>
class BlockRank {
 public:
  CAIRN_GPU explicit BlockRank(uint32_t* counts) : counts_(counts) {}

  // Sets rank[i] to the number of yes votes before this one, in all rounds so far.
  CAIRN_GPU void Next(const Lane& at, const bool (&votes)[kRanks], uint32_t (&rank)[kRanks]) {
    const uint32_t warps = at.threads() / kWarp;
    const Votes<kRanks> of = at.Ballots(Votes<kRanks>{{votes[0] ? 1u : 0u, votes[1] ? 1u : 0u}});
    if (at.lane() == 0) {
      for (uint32_t i = 0; i < kRanks; ++i) counts_[i * warps + at.warp()] = at.PopCount(of.of[i]);
    }
    at.SyncBlock();
    for (uint32_t i = 0; i < kRanks; ++i) {
      uint32_t before = 0, all = 0;
      for (uint32_t warp = 0; warp < warps; ++warp) {
        const uint32_t count = counts_[i * warps + warp];
        before += warp < at.warp() ? count : 0;
        all += count;
      }
      rank[i] = total_[i] + before + at.PopCount(of.of[i] & Below(at.lane()));
      total_[i] += all;
    }
    at.SyncBlock();  // The counts are written again.
  }
  CAIRN_GPU uint32_t total(uint32_t i) const { return total_[i]; }

 private:
  uint32_t* const counts_;
  uint32_t total_[kRanks] = {0, 0};
};

}  // namespace cairn::gpu
