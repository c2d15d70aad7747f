// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/commit_observer.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

// For a fill the node follows from the path; every other op names it.
uint64_t NodeOf(const Tree& tree, const Op& op) {
  if (op.kind != OpKind::kFill || op.lanes.empty()) return op.node;
  const Head* const head = tree.FindHead(op.branch);
  if (head == nullptr) return 0;
  const LaneRange& range = op.lanes.front();
  if (range.lane == kTokenLane || range.lane >= head->lengths.size()) return 0;  // It will not fit.
  const auto holes = FindHoles(tree, *head, range.lane, range.begin, range.begin + range.count);
  return holes.empty() ? 0 : holes.front().node;
}

}  // namespace cairn::engine
