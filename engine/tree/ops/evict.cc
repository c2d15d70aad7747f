// SPDX-License-Identifier: Apache-2.0
//
// Evicts KV when room is needed, and fills it again.
//
// A position's KV is needed by every branch whose path holds it and that was not evicted itself. A
// node knows the branches and children that end on it or leave it (Node::refs), farthest first. So
// its KV is needed up to the first of them that is not evicted. No counts are stored.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

namespace {

// Positions [begin, end) of an absent extent.
Extent PartOf(const Extent& absent, uint64_t begin, uint64_t end) {
  Extent part{.begin = begin, .count = static_cast<uint32_t>(end - begin), .place = {}};
  part.place.table = absent.place.table;
  return part;
}

}  // namespace

// ---------------------------------------------------------------- deciding

Result<Op> ResolveEvict(const Tree& tree, uint64_t branch, size_t ranges_max, EvictNeeds* missing) {
  const Head* const head = tree.FindHead(branch);
  if (head == nullptr) return NoBranch(branch);
  Op op;
  op.kind = OpKind::kEvict;
  op.branch = branch;
  Ref own{head->lengths[kTokenLane], Ref::kHead, branch};
  for (const Node* node = tree.OnPath(head->node);
       node != nullptr && op.sealed.size() < ranges_max;) {
    // Position up to which something else needs it.
    uint64_t needed = 0;
    bool is_needed = false;
    for (auto ref = node->refs.rbegin(); ref != node->refs.rend() && !is_needed; ++ref) {
      if (*ref == own) continue;
      if (ref->kind == Ref::kHead) {
        const Head* const other = tree.FindHead(ref->id);
        if (other == nullptr && !tree.KnowsHead(ref->id)) missing->branches.push_back(ref->id);
        is_needed = CAIRN_KEPT(kLiveEvicted) && other != nullptr && !other->kv_evicted;
      } else {
        const Node* const child = tree.FindNode(ref->id);
        if (child == nullptr && !tree.KnowsNode(ref->id)) missing->nodes.push_back(ref->id);
        is_needed = child != nullptr && !child->kv_gone;
      }
      if (missing->any()) return op;
      if (is_needed) needed = ref->position;
    }
    // Nothing is known about the refs before it.
    if (!is_needed && !node->knows_all_refs()) {
      needed = node->refs_from.position;
      is_needed = true;
    }
    if (const uint64_t leased = tree.leases().LeasedTo(node->id); leased > needed) {
      needed = leased;
      is_needed = true;
    }
    for (uint32_t lane = 1; lane < node->lanes.size(); ++lane) {
      const Lane& kv = node->lanes[lane];
      const uint64_t begin = std::max(needed, kv.start);
      const size_t first = ExtentAt(kv, begin);
      if (std::all_of(kv.extents.begin() + static_cast<ptrdiff_t>(first), kv.extents.end(),
                      [](const Extent& extent) { return extent.place.absent(); })) {
        continue;
      }
      op.sealed.push_back({.node = node->id,
                           .begin = begin,
                           .lane = lane,
                           .count = static_cast<uint32_t>(kv.end - begin),
                           .stored_bytes = 0});
    }
    if (is_needed) break;
    if (!node->kv_gone) op.sealed.push_back({node->id, 0, kWholeNodeLane, 1, 0});
    own = {node->lanes[kTokenLane].start, Ref::kEdge, node->id};
    node = tree.OnPath(node->parent);
  }
  return op;
}

uint64_t EvictedBytes(const Tree& tree, const Op& op) {
  uint64_t bytes = 0;
  for (const SealedRange& range : op.sealed) {
    if (range.lane == kWholeNodeLane) continue;
    const Node& node = *tree.FindNode(range.node);
    const Lane& lane = node.lanes[range.lane];
    for (size_t i = ExtentAt(lane, range.begin); i < lane.extents.size(); ++i) {
      const Extent& extent = lane.extents[i];
      if (extent.place.absent()) continue;
      const uint64_t count = extent.begin + extent.count - std::max(extent.begin, range.begin);
      bytes += extent.place.in_table() ? extent.place.Share(count)
                                       : count * PositionBytes(tree.ModelOf(node), range.lane);
    }
  }
  return bytes;
}

// ---------------------------------------------------------------- applying

// Everything that ends on this node or leaves it needs its KV and that of the nodes above.
void TreeChanges::NeedKv(Node* node) {
  std::vector<Node*> needed;
  for (; node != nullptr && node->kv_gone; node = tree_->residency().MutableNode(node->parent)) {
    needed.push_back(node);
  }
  if (needed.empty()) return;
  transaction_->ReserveUndo(8);
  transaction_->PushUndo([needed] {
    for (Node* const one : needed) one->kv_gone = true;
  });
  for (Node* const one : needed) {
    tree_->dirty().Touch(one);
    one->kv_gone = false;
  }
}

Status TreeChanges::ApplyEvict(const Op& op) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr) return DoesNotApply(op, "no such branch");
  transaction_->ReserveUndo(2 + 2 * op.sealed.size());
  for (const SealedRange& range : op.sealed) {
    Node* const node = tree_->residency().MutableNode(range.node);
    if (node == nullptr) return DoesNotApply(op, "no node " + std::to_string(range.node));
    if (range.lane == kWholeNodeLane) {
      transaction_->PushUndo([node] { node->kv_gone = false; });
      tree_->dirty().Touch(node);
      node->kv_gone = true;
      continue;
    }
    if (range.lane == kTokenLane || range.lane >= node->lanes.size()) {
      return DoesNotApply(op, "no such lane");
    }
    const Lane& lane = node->lanes[range.lane];
    if (range.begin < lane.start || range.begin >= lane.end ||
        range.begin + range.count != lane.end) {
      return DoesNotApply(op, "not up to the end of the lane");
    }
    EvictRange(node, range.lane, range.begin);
    if (CAIRN_KEPT(kDerivedOfEvicted)) DropDerived(node, range.begin);
  }
  transaction_->PushUndo([tree = tree_, id = op.branch, before = head->kv_evicted] {
    tree->residency().HeadAt(id).kv_evicted = before;
  });
  tree_->dirty().Touch(head);
  head->kv_evicted = true;
  return Status::Ok();
}

void TreeChanges::EvictRange(Node* node, uint32_t lane_index, uint64_t begin) {
  const Lane& lane = node->lanes[lane_index];
  size_t first = ExtentAt(lane, begin);
  if (first > 0 && lane.extents[first].begin == begin && lane.extents[first - 1].place.evicted()) {
    --first;
  }
  std::vector<Extent> left;
  for (size_t i = first; i < lane.extents.size(); ++i) {
    Extent extent = lane.extents[i];
    if (extent.begin < begin && !extent.place.absent()) {
      left.push_back(extent);
      left.back().count = static_cast<uint32_t>(begin - extent.begin);
      extent.count -= left.back().count;
      extent.begin = begin;
    }
    if (!extent.place.gap()) extent.place.table = kEvictedTable;
    // Evicted neighbours are one extent.
    if (!left.empty() && left.back().place.evicted() && extent.place.evicted()) {
      CAIRN_CHECK(uint64_t{left.back().count} + extent.count <= UINT32_MAX);
      left.back().count += extent.count;
    } else {
      left.push_back(PartOf(extent, extent.begin, extent.begin + extent.count));
    }
  }
  ReplaceExtents(node, lane_index, first, lane.extents.size(), std::move(left));
}

Status TreeChanges::ApplyFill(const Op& op) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr) return DoesNotApply(op, "no such branch");
  for (const LaneRange& range : op.lanes) {
    if (range.lane == kTokenLane || range.lane >= head->lengths.size() || range.count == 0 ||
        range.begin + range.count > head->lengths[range.lane]) {
      return DoesNotApply(op, "no such lane, or beyond its end");
    }
    Node* node = tree_->residency().MutableNode(head->node);
    while (node != nullptr && range.begin < node->lanes[range.lane].start) {
      node = tree_->residency().MutableNode(node->parent);
    }
    if (node == nullptr) return DoesNotApply(op, "no node holds these positions");
    const std::vector<Extent>& extents = node->lanes[range.lane].extents;
    const uint64_t end = range.begin + range.count;
    const size_t first = ExtentAt(node->lanes[range.lane], range.begin);
    size_t last = first;  // Behind the extents that it covers.
    while (last < extents.size() && extents[last].begin < end && extents[last].place.absent()) {
      ++last;
    }
    if (last == first || extents[last - 1].begin + extents[last - 1].count < end) {
      return DoesNotApply(op, "positions that have KV");
    }
    const Extent& front = extents[first];
    const Extent& back = extents[last - 1];
    const uint64_t back_end = back.begin + back.count;
    std::vector<Extent> filled;
    if (front.begin < range.begin) filled.push_back(PartOf(front, front.begin, range.begin));
    filled.push_back({.begin = range.begin,
                      .count = static_cast<uint32_t>(range.count),
                      .op_index = op_index_,
                      .place = {},
                      .exact = op.exact});
    if (end < back_end) filled.push_back(PartOf(back, end, back_end));
    ReplaceExtents(node, range.lane, first, last, std::move(filled));
    unsealed_.emplace_back(node->id, range.count);
    touched_.push_back(node->id);
    filled_.push_back({node->id, range.lane, range.begin});
  }
  transaction_->PushUndo([tree = tree_, id = op.branch, before = head->kv_evicted] {
    tree->residency().HeadAt(id).kv_evicted = before;
  });
  tree_->dirty().Touch(head);
  head->kv_evicted = false;
  head->used_at_ns = std::max(head->used_at_ns, op.time_ns);
  NeedKv(tree_->residency().MutableNode(head->node));
  return Status::Ok();
}

Status TreeChanges::ApplyKeep(const Op& op) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr || !op.policy.has_value())
    return DoesNotApply(op, "no such branch, or no policy");
  transaction_->PushUndo([tree = tree_, id = op.branch, before = head->keep] {
    tree->residency().HeadAt(id).keep = before;
  });
  tree_->dirty().Touch(head);
  head->keep = op.policy->keep();
  head->used_at_ns = std::max(head->used_at_ns, op.time_ns);
  tree_->sums().RecordExpiry(*head);
  return Status::Ok();
}

Status TreeChanges::ApplyNamespace(const Op& op) {
  if (!op.policy.has_value()) return DoesNotApply(op, "no policy");
  NamespaceUsage* const use = tree_->sums().NamespaceOf(op.ns);
  transaction_->PushUndo([use, before = use->policy] { use->policy = before; });
  use->policy = op.policy->ns_policy();
  use->dirty = true;
  return Status::Ok();
}

}  // namespace cairn::engine
