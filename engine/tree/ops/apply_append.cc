// SPDX-License-Identifier: Apache-2.0
//
// Appends: what they do to the tree, and how it is undone. (Seals: apply_seal.cc, trims: trim.cc,
// evictions and fills: evict.cc, joins: join.cc.)
#include <algorithm>
#include <memory>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/memory/retention.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

Node* TreeChanges::MakeNode(const Op& op, const Head& head) {
  tree_->dirty().ReserveNodes(tree_->residency().node_count() + 1);
  tree_->residency().RememberNode(op.node);
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->id = op.node;
  node->model = head.model;
  node->parent = op.other;
  node->owner = op.branch;
  node->ns = head.ns;
  node->use = tree_->sums().NamespaceOf(head.ns);
  node->lanes.resize(head.lengths.size());
  for (size_t lane = 0; lane < head.lengths.size(); ++lane) {
    node->lanes[lane].start = node->lanes[lane].end = head.lengths[lane];
  }
  const uint64_t leave = head.lengths[kTokenLane];
  transaction_->PushUndo([tree = tree_, id = op.node, parent = op.other, leave] {
    Node* const undone = tree->residency().NodeOrGone(id);
    if (undone == nullptr) return;
    if (Node* const left = tree->residency().MutableNode(parent); left != nullptr) {
      left->refs.erase({leave, Ref::kEdge, id});
      --left->users;
    }
    tree->sums().CountNode(undone->use, -1);
    tree->residency().RemoveNode(id);
  });
  tree_->residency().AddNode(std::move(made));
  tree_->sums().CountNode(node->use, 1);
  if (Node* const left = tree_->residency().MutableNode(op.other); left != nullptr) {
    ++left->users;
    if (CAIRN_KEPT(kLiveFork)) left->refs.insert({leave, Ref::kEdge, op.node});
    NeedKv(left);
  }
  tree_->residency().Charge(node);
  tree_->dirty().Touch(node);
  TakeId(op.node);
  return node;
}

Status TreeChanges::ApplyAppend(const Op& op, std::span<const Part> parts) {
  Head* const head = tree_->residency().MutableHead(op.branch);
  if (head == nullptr) return DoesNotApply(op, "no such branch");
  if (op.position != head->lengths[kTokenLane]) {
    return DoesNotApply(op, "it was " + std::to_string(op.position) + " tokens long, not " +
                                std::to_string(head->lengths[kTokenLane]));
  }
  Node* node = nullptr;
  if ((op.flags & kOpNewNode) != 0) {
    if (op.other != head->node || !IsNumber(op.node) || tree_->KnowsNode(op.node)) {
      return DoesNotApply(op, "bad new node");
    }
    if (op.other != 0 && tree_->FindNode(op.other) == nullptr) return DoesNotApply(op, "no parent");
    node = MakeNode(op, *head);
  } else {
    node = tree_->residency().MutableNode(op.node);
    if (node == nullptr || head->node != op.node) return DoesNotApply(op, "bad node");
    for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
      if (node->lanes[lane].end != head->lengths[lane])
        return DoesNotApply(op, "not at the node's end");
    }
  }
  transaction_->PushUndo(
      [tree = tree_, id = op.branch, before = head->updated_at_ns, evicted = head->kv_evicted] {
        tree->residency().HeadAt(id).updated_at_ns = before;
        tree->residency().HeadAt(id).kv_evicted = evicted;
      });
  head->updated_at_ns = op.time_ns;
  head->used_at_ns = std::max(head->used_at_ns, op.time_ns);
  head->kv_evicted = false;
  tree_->dirty().Touch(head);
  touched_.push_back(node->id);
  if (op.table.number != 0 || !op.sealed.empty()) {
    uint64_t stored_bytes = 0;
    for (const SealedRange& range : op.sealed) {
      if (range.node != op.node || range.lane >= node->lanes.size()) {
        return DoesNotApply(op, "its table holds something else");
      }
      stored_bytes += range.stored_bytes;
    }
    if (!IsNumber(op.table.number) || stored_bytes == 0) {
      return DoesNotApply(op, "no table, or nothing in it");
    }
    NameTable(op.table, stored_bytes);
  }
  return AddExtents(node, head, op, parts);
}

Status TreeChanges::AddExtents(Node* node, Head* head, const Op& op, std::span<const Part> parts) {
  const auto held = [](const Lane& lane) { return lane.end - lane.start - lane.absent; };
  std::vector<uint64_t> ends(node->lanes.size()), held_before(ends);
  for (size_t lane = 0; lane < ends.size(); ++lane) {
    ends[lane] = node->lanes[lane].end;
    held_before[lane] = held(node->lanes[lane]);
  }
  // Only the last state from before may have been replaced.
  const auto last = [](const std::vector<Mark>& marks) {
    return marks.empty() ? Mark() : marks.back();
  };
  const auto cut_back = [tree = tree_](std::vector<Mark>* marks, size_t count, const Mark& before) {
    for (size_t i = count; i < marks->size(); ++i) tree->CountMark((*marks)[i].place, -1);
    marks->resize(count);
    if (count == 0 || marks->back().place == before.place) return;
    tree->CountMark(before.place, 1);
    marks->back() = before;
  };
  const Recount recount(tree_, *node);
  tree_->dirty().Touch(node);
  transaction_->PushUndo([tree = tree_, cut_back, node, ends, samplers = node->samplers.size(),
                          metadata = node->metadata.size(), sampler = last(node->samplers),
                          metadatum = last(node->metadata), spans = node->spans.size()] {
    const Recount undone(tree, *node);
    for (size_t lane = 0; lane < ends.size(); ++lane) {
      std::vector<Extent>& extents = node->lanes[lane].extents;
      while (!extents.empty() && extents.back().begin >= ends[lane]) {
        tree->CountExtent(node, lane, extents.back(), -1);
        extents.pop_back();
      }
      node->lanes[lane].end = ends[lane];
    }
    cut_back(&node->samplers, samplers, sampler);
    cut_back(&node->metadata, metadata, metadatum);
    node->spans.resize(spans);
  });
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.lanes.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(AddRange(node, head, part.lanes[i],
                                     {.place = {.log = part.location},
                                      .prefix_bytes = part.prefix_bytes[i],
                                      .exact = op.exact}));
    }
  }
  for (const SealedRange& range : op.sealed) {
    const Place place{.log = {},
                      .table = op.table.number,
                      .positions = range.count,
                      .stored_bytes = range.stored_bytes};
    CAIRN_RETURN_IF_ERROR(AddRange(node, head, {range.lane, 0, range.begin, range.count},
                                   {.place = place, .exact = op.exact}));
  }
  for (const LaneRange& range : op.lanes) {
    CAIRN_RETURN_IF_ERROR(AddRange(node, head, range, {.place = {}, .exact = op.exact}));
  }
  for (uint64_t from = op.position; const ContentSpan& span : op.spans) {
    if (span.begin < from || span.begin >= span.end || span.end > node->lanes[kTokenLane].end) {
      return DoesNotApply(op, "content spans out of order, or beyond the tokens");
    }
    from = span.end;
  }
  node->spans.insert(node->spans.end(), op.spans.begin(), op.spans.end());
  if (op.sealed.empty()) {
    uint64_t added = 0;  // Positions with KV.
    for (size_t lane = 1; lane < ends.size(); ++lane) {
      added = std::max(added, held(node->lanes[lane]) - held_before[lane]);
    }
    if (added > 0) unsealed_.emplace_back(node->id, added);
  }
  std::vector<uint64_t> lengths(node->lanes.size());
  for (size_t lane = 0; lane < lengths.size(); ++lane) {
    lengths[lane] = node->lanes[lane].end;
    if (lengths[lane] > node->lanes[kTokenLane].end)
      return DoesNotApply(op, "KV beyond the tokens");
  }
  MoveHead(head, node, std::move(lengths));
  return Status::Ok();
}

Status TreeChanges::AddRange(Node* node, Head* head, const LaneRange& range, const Extent& as) {
  const Place& place = as.place;
  if (range.lane == kSamplerLane || range.lane == kMetadataLane) {
    std::vector<Mark>& marks = range.lane == kSamplerLane ? node->samplers : node->metadata;
    // A state may be set again at a position that got no token since; the newest counts.
    if (!marks.empty() && marks.back().position == range.begin) {
      tree_->CountMark(marks.back().place, -1);
      marks.pop_back();
      Node::Flushed& flushed = node->flushed;
      (range.lane == kSamplerLane ? flushed.samplers : flushed.metadata).Changed(marks.size());
    }
    marks.push_back({range.begin, range.strip, place});
    tree_->CountMark(place, 1);
    if (place.log.segment != 0) RecordLogged(place.log.segment, node->id);
    return Status::Ok();
  }
  const bool no_lane = range.lane >= node->lanes.size();
  const bool gaps = !no_lane && range.lane != kTokenLane &&
                    MayHaveGaps(tree_->ModelOf(*node).groups[range.lane - 1]);
  if (no_lane || range.count == 0 || range.count > UINT32_MAX ||
      range.begin < node->lanes[range.lane].end ||
      range.begin - node->lanes[range.lane].end > (gaps ? UINT32_MAX : 0)) {
    return Status(StatusCode::kCorruption, "append of branch #" + std::to_string(head->id) +
                                               ": lane " + std::to_string(range.lane) +
                                               " does not go on at " + std::to_string(range.begin));
  }
  Lane& lane = node->lanes[range.lane];
  if (range.begin != lane.end) {
    Extent gap{
        .begin = lane.end, .count = static_cast<uint32_t>(range.begin - lane.end), .place = {}};
    gap.place.table = kGapTable;
    lane.extents.push_back(gap);
    tree_->CountExtent(node, range.lane, gap, 1);
  }
  // Commit finds the other extents from the lane's end.
  if (gaps && !place.known()) filled_.push_back({node->id, range.lane, range.begin});
  lane.extents.push_back({.begin = range.begin,
                          .count = static_cast<uint32_t>(range.count),
                          .op_index = op_index_,
                          .place = place,
                          .prefix_bytes = as.prefix_bytes,
                          .exact = as.exact || range.lane == kTokenLane});
  tree_->CountExtent(node, range.lane, lane.extents.back(), 1);
  if (place.known()) lane.extents.back().op_index = 0;  // A part is a record of one op.
  if (place.log.segment != 0) RecordLogged(place.log.segment, node->id);
  lane.end = range.begin + range.count;
  return Status::Ok();
}

}  // namespace cairn::engine
