// SPDX-License-Identifier: Apache-2.0
//
// The content on the path of a branch: the node that it ends on and those above, as far as the
// branch uses each. The caller holds the commit lock; the branch is in memory, so its path is.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/branch_types.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

// The positions in [begin, end) of a lane that the branch has, in order.
std::vector<LanePiece> CollectLane(const Tree& tree, const Head& head, uint32_t lane,
                                   uint64_t begin, uint64_t end);
std::vector<PathStep> CollectPath(const Tree& tree, const Head& head);
// The newest mark at or below `position`; null: there is none. `node`: where it is.
const Mark* FindMark(const Tree& tree, const Head& head, bool sampler, uint64_t position,
                     uint64_t* node = nullptr);
// The derived mark of this kind with the highest position that is not above `position`.
const Mark* FindDerived(const Tree& tree, const Head& head, uint32_t kind, uint64_t position,
                        uint64_t* node);
std::vector<ContentSpan> CollectSpans(const Tree& tree, const Head& head, uint64_t begin,
                                      uint64_t end);

// Positions of a lane that have no KV (any more), in order, adjacent ones joined.
struct Hole {
  uint64_t node = 0;
  uint64_t begin = 0, end = 0;
};
std::vector<Hole> FindHoles(const Tree& tree, const Head& head, uint32_t lane, uint64_t begin,
                            uint64_t end);

// The node at or above `node` on which `position` tokens end; cuts `lengths` to what is on it. A
// node that begins at the position is only chosen for a state that it has there, one that was set
// without a token.
const Node* NodeAt(const Tree& tree, const Node* node, uint64_t position,
                   std::vector<uint64_t>* lengths);
// The same for a fork of a node's path that is no branch's path. The fork gets everything that lies
// on the node where it ends, also KV that the node's own branch added after the path left it.
const Node& ForkedNode(const Tree& tree, const Node& node, uint64_t position);
// The first extent of the lane that reaches beyond `position`.
size_t ExtentAt(const Lane& lane, uint64_t position);
std::vector<uint64_t> EndsOf(const Node& node);  // Lengths of a branch that has all of it.

}  // namespace cairn::engine
