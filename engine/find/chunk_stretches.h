// SPDX-License-Identifier: Apache-2.0
//
// Where a node's path has KV that chunks may be made of: exact (Delta::exact), in every group that
// a restore needs. Looks at the tree alone; the commit lock is held, and the node is in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

struct ChunkStretch {
  uint64_t begin = 0, end = 0;
  bool operator==(const ChunkStretch&) const = default;
};

// The stretches of [begin, end) of the path that ends with all of the node, in order, none
// adjacent. A model with recurrent states, or one state per request, has none: a state belongs to
// all ids before it, not to a run of them.
std::vector<ChunkStretch> ExactStretches(const Tree& tree, const Node& node, uint64_t begin,
                                         uint64_t end);

// Chunks of the path that came with the node: those that end behind `from`.
struct NewChunks {
  uint64_t from = 0;
  // Of these positions, which begin far enough before `from`.
  std::vector<ChunkStretch> stretches{};
};
// `from`: the node has new KV or ids from there on. What is above the node came with it only where
// it begins a namespace.
NewChunks FindNewChunks(const Tree& tree, const Node& node, uint64_t from, bool begins_namespace);

}  // namespace cairn::engine
