// SPDX-License-Identifier: Apache-2.0
//
// A part of a prompt whose KV is somewhere in the store.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/blend.h"
#include "engine/find/path_runs.h"

namespace cairn::engine {

struct Piece {
  uint64_t begin = 0, end = 0;  // Positions of the prompt...
  uint64_t node = 0;            // ...which stand on the path that ends with this node...
  uint64_t source = 0;          // ...from this position on.
  // FindPrefix found it: the prompt begins like the path up to there. `prefix`: and it is exact.
  bool of_hit = false, prefix = false;
  // Positions of the prompt, ascending, at which other ids or content stand there.
  std::vector<uint64_t> differs{};

  uint64_t SourceOf(uint64_t position) const { return position - begin + source; }
  uint64_t source_end() const { return SourceOf(end); }
  // How far positions of the source are moved; equal for what goes on where another piece ends.
  int64_t shift() const { return static_cast<int64_t>(begin - source); }
  bool GoesOnAs(const Piece& next) const {
    return end == next.begin && node == next.node && shift() == next.shift();
  }
};

// Seals the hash of what stands in the run into the segment. Never equal for another model or
// namespace.
void SetDigest(std::span<const TokenId> ids, const PathRun& run, uint64_t ns_seed, ModelId model,
               BlendSegment* segment);

}  // namespace cairn::engine
