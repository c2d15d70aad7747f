// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/path.h"

#include <algorithm>

#include "base/core/mutation.h"

namespace cairn::engine {

std::vector<LanePiece> CollectLane(const Tree& tree, const Head& head, uint32_t lane,
                                   uint64_t begin, uint64_t end) {
  std::vector<LanePiece> pieces;  // Last first.
  uint64_t limit = std::min(end, head.lengths[lane]);
  for (const Node* node = tree.OnPath(head.node); node != nullptr && begin < limit;
       node = tree.OnPath(node->parent)) {
    const Lane& on_node = node->lanes[lane];
    auto it = std::upper_bound(on_node.extents.begin(), on_node.extents.end(), limit,
                               [](uint64_t p, const Extent& e) { return p <= e.begin; });
    while (it != on_node.extents.begin()) {
      const Extent& extent = *--it;
      const uint64_t piece_end = std::min(limit, extent.begin + extent.count);
      const uint64_t piece_begin = std::max(begin, extent.begin);
      if (piece_end <= begin) break;
      if (piece_begin < piece_end) pieces.push_back({node->id, piece_begin, piece_end, extent});
    }
    limit = std::min(limit, on_node.start);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<PathStep> CollectPath(const Tree& tree, const Head& head) {
  std::vector<PathStep> steps;
  uint64_t limit = head.lengths[kTokenLane];
  for (const Node* node = tree.OnPath(head.node); node != nullptr;
       node = tree.OnPath(node->parent)) {
    steps.push_back({.node = NodeId{node->id},
                     .parent = NodeId{node->parent},
                     .begin = node->lanes[kTokenLane].start,
                     .end = limit,
                     .owner = BranchId{node->owner}});
    limit = node->lanes[kTokenLane].start;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

const Mark* FindMark(const Tree& tree, const Head& head, bool sampler, uint64_t position,
                     uint64_t* on_node) {
  uint64_t limit = std::min(position, head.lengths[kTokenLane]);
  for (const Node* node = tree.OnPath(head.node); node != nullptr;
       node = tree.OnPath(node->parent)) {
    const std::vector<Mark>& marks = sampler ? node->samplers : node->metadata;
    auto it = std::upper_bound(marks.begin(), marks.end(), limit,
                               [](uint64_t p, const Mark& m) { return p < m.position; });
    if (it != marks.begin()) {
      if (on_node != nullptr) *on_node = node->id;
      return &*std::prev(it);
    }
    limit = std::min(limit, node->lanes[kTokenLane].start);
  }
  return nullptr;
}

const Mark* FindDerived(const Tree& tree, const Head& head, uint32_t kind, uint64_t position,
                        uint64_t* on_node) {
  uint64_t limit = std::min(position, head.lengths[kTokenLane]);
  for (const Node* node = tree.OnPath(head.node); node != nullptr;
       node = tree.OnPath(node->parent)) {
    const auto newest = std::find_if(
        node->derived.rbegin(), node->derived.rend(),
        [&](const Mark& mark) { return mark.position <= limit && mark.strip == kind; });
    if (newest != node->derived.rend()) {
      *on_node = node->id;
      return &*newest;
    }
    limit = std::min(limit, node->lanes[kTokenLane].start);
  }
  return nullptr;
}

std::vector<ContentSpan> CollectSpans(const Tree& tree, const Head& head, uint64_t begin,
                                      uint64_t end) {
  std::vector<ContentSpan> found;
  uint64_t node_end = head.lengths[kTokenLane];  // As far as the branch uses each.
  for (const Node* node = tree.OnPath(head.node); node != nullptr && begin < node_end;
       node = tree.OnPath(node->parent)) {
    for (auto it = node->spans.rbegin(); it != node->spans.rend(); ++it) {
      ContentSpan span = *it;
      span.end = std::min(span.end, node_end);
      if (span.begin < span.end && span.begin < end && span.end > begin) found.push_back(span);
    }
    node_end = std::min(node_end, node->lanes[kTokenLane].start);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::vector<Hole> FindHoles(const Tree& tree, const Head& head, uint32_t lane, uint64_t begin,
                            uint64_t end) {
  std::vector<Hole> holes;
  for (const LanePiece& piece : CollectLane(tree, head, lane, begin, end)) {
    if (!piece.extent.place.absent()) continue;
    if (!holes.empty() && holes.back().node == piece.node && holes.back().end == piece.begin) {
      holes.back().end = piece.end;
    } else {
      holes.push_back({piece.node, piece.begin, piece.end});
    }
  }
  return holes;
}

namespace {

// The node does not reach the position, and has no state there either.
bool BeginsBehind(const Node& node, uint64_t position) {
  const auto has_state = [position](const std::vector<Mark>& marks) {
    return !marks.empty() && marks.front().position == position;
  };
  if (position > node.lanes[kTokenLane].start) return false;
  return !CAIRN_KEPT(kLiveState) || (!has_state(node.samplers) && !has_state(node.metadata));
}

}  // namespace

const Node* NodeAt(const Tree& tree, const Node* node, uint64_t position,
                   std::vector<uint64_t>* lengths) {
  for (uint64_t& length : *lengths) length = std::min(length, position);
  while (node != nullptr && BeginsBehind(*node, position)) {
    for (size_t lane = 0; lane < lengths->size(); ++lane) {
      (*lengths)[lane] = std::min((*lengths)[lane], node->lanes[lane].start);
    }
    node = tree.OnPath(node->parent);
  }
  return node;
}

const Node& ForkedNode(const Tree& tree, const Node& node, uint64_t position) {
  const Node* forked = &node;
  while (BeginsBehind(*forked, position)) {
    const Node* const parent = tree.OnPath(forked->parent);
    if (parent == nullptr) break;
    forked = parent;
  }
  return *forked;
}

size_t ExtentAt(const Lane& lane, uint64_t position) {
  return static_cast<size_t>(std::partition_point(lane.extents.begin(), lane.extents.end(),
                                                  [&](const Extent& extent) {
                                                    return extent.begin + extent.count <= position;
                                                  }) -
                             lane.extents.begin());
}

std::vector<uint64_t> EndsOf(const Node& node) {
  std::vector<uint64_t> ends;
  for (const Lane& lane : node.lanes) ends.push_back(lane.end);
  return ends;
}

}  // namespace cairn::engine
