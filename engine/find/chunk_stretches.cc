// SPDX-License-Identifier: Apache-2.0
#include "engine/find/chunk_stretches.h"

#include <algorithm>

#include "engine/find/constants.h"
#include "engine/restore/plan/plan.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

namespace {

bool HasStates(const LayerGroup& group) {
  return group.retention.kind == Retention::kCheckpoint ||
         group.retention.kind == Retention::kPerRequest;
}

// Groups that a restore needs, as lanes. Empty as well where one of them has states.
std::vector<uint32_t> NeededLanes(const ModelSpec& model) {
  std::vector<uint32_t> lanes;
  for (uint32_t group = 0; group < model.groups.size(); ++group) {
    if (model.groups[group].optional) continue;
    if (HasStates(model.groups[group])) return {};
    lanes.push_back(1 + group);
  }
  return lanes;
}

std::vector<ChunkStretch> ExactOfLane(const Tree& tree, const Head& head, uint32_t lane,
                                      const ChunkStretch& within) {
  std::vector<ChunkStretch> exact;
  for (const LanePiece& piece : CollectLane(tree, head, lane, within.begin, within.end)) {
    if (piece.extent.place.absent() || !piece.extent.exact) continue;
    if (!exact.empty() && exact.back().end == piece.begin) {
      exact.back().end = piece.end;
    } else {
      exact.push_back({piece.begin, piece.end});
    }
  }
  return exact;
}

std::vector<ChunkStretch> InBoth(const std::vector<ChunkStretch>& a,
                                 const std::vector<ChunkStretch>& b) {
  std::vector<ChunkStretch> both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const ChunkStretch common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.begin < common.end) both.push_back(common);
    ++(a[i].end < b[j].end ? i : j);
  }
  return both;
}

}  // namespace

std::vector<ChunkStretch> ExactStretches(const Tree& tree, const Node& node, uint64_t begin,
                                         uint64_t end) {
  const std::vector<uint32_t> lanes = NeededLanes(tree.ModelOf(node));
  const ChunkStretch all{begin, std::min(end, node.lanes[kTokenLane].end)};
  if (lanes.empty() || all.begin >= all.end) return {};
  const Head head = HeadOfNode(node);
  std::vector<ChunkStretch> exact = {all};
  for (const uint32_t lane : lanes) {
    exact = InBoth(exact, ExactOfLane(tree, head, lane, all));
  }
  return exact;
}

NewChunks FindNewChunks(const Tree& tree, const Node& node, uint64_t from, bool begins_namespace) {
  uint64_t start = node.lanes[kTokenLane].start;
  for (const uint32_t lane : NeededLanes(tree.ModelOf(node))) {
    start = std::min(start, node.lanes[lane].start);
  }
  NewChunks found{.from = std::max(from, start)};
  if (from <= start && begins_namespace) found.from = 0;
  // With the window before the first new one what that chose is not new. On the node it has an
  // entry then; above it only entries of other nodes.
  const uint64_t before = from > start ? kChunkRun : kChunkRun - 1;
  const uint64_t begin = found.from - std::min(found.from, before);
  found.stretches = ExactStretches(tree, node, begin, node.lanes[kTokenLane].end);
  std::erase_if(found.stretches, [&](const ChunkStretch& one) {
    return one.end <= found.from || one.end - one.begin < kChunkRun;
  });
  return found;
}

}  // namespace cairn::engine
