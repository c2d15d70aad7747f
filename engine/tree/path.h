// SPDX-License-Identifier: Apache-2.0
//
// What lies on the path of a branch: the node that it ends on and what is above that, as far as the
// branch goes on each. The commit lock is held; the branch is in memory, so its path is.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/branch.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

// Of the positions [begin, end) of a lane, those that the branch has, in order.
std::vector<LanePiece> CollectLane(const Tree& tree, const Head& head, uint32_t lane,
                                   uint64_t begin, uint64_t end);
std::vector<PathStep> CollectPath(const Tree& tree, const Head& head);
// The newest mark at or below `position`; null: there is none. `node`: where it is.
const Mark* FindMark(const Tree& tree, const Head& head, bool sampler, uint64_t position,
                     uint64_t* node = nullptr);
// Of what is derived of this kind the one of the highest position at or below that.
const Mark* FindDerived(const Tree& tree, const Head& head, uint32_t kind, uint64_t position,
                        uint64_t* node);
std::vector<ContentSpan> CollectSpans(const Tree& tree, const Head& head, uint64_t begin,
                                      uint64_t end);

// The positions of a lane that have no KV (any more), in order, joined.
struct Hole {
  uint64_t node = 0;
  uint64_t begin = 0, end = 0;
};
std::vector<Hole> FindHoles(const Tree& tree, const Head& head, uint32_t lane, uint64_t begin,
                            uint64_t end);

// The node at or above `node` on which `position` tokens end; cuts `lengths` to what is on it. A
// node that begins at the position is only gone to for a state that it has there: one that was set
// without a token.
const Node* NodeAt(const Tree& tree, const Node* node, uint64_t position,
                   std::vector<uint64_t>* lengths);
// The same for a fork of the node's path, which is none of a branch: it gets all that lies on the
// node where it ends, also KV that this had from its own branch later than the path left it.
const Node& ForkedNode(const Tree& tree, const Node& node, uint64_t position);
// The first extent of the lane that reaches beyond `position`.
size_t ExtentAt(const Lane& lane, uint64_t position);
std::vector<uint64_t> EndsOf(const Node& node);  // Lengths of a branch with all of it.

}  // namespace cairn::engine
