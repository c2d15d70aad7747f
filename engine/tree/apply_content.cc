// SPDX-License-Identifier: Apache-2.0
//
// Ops about what nodes hold, where it lies and where it ends: appends and seals. (Cuts: cut.cc,
// evictions and fills: evict.cc, joins: join.cc.)
#include <algorithm>
#include <memory>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "engine/tree/retention.h"
#include "engine/tree/tree_changes.h"

namespace cairn::engine {

Node* TreeChanges::MakeNode(const Op& op, const Head& head) {
  const size_t entries = tree_->dirty_.nodes.size() + tree_->nodes_.size() + 1;
  if (tree_->dirty_.nodes.capacity() < entries) tree_->dirty_.nodes.reserve(2 * entries);
  tree_->Remember(/*head=*/false, op.node);
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->id = op.node;
  node->model = head.model;
  node->parent = op.other;
  node->owner = op.branch;
  node->ns = head.ns;
  node->use = &tree_->namespaces_.find(head.ns)->second;
  node->lanes.resize(head.lengths.size());
  for (size_t lane = 0; lane < head.lengths.size(); ++lane) {
    node->lanes[lane].start = node->lanes[lane].end = head.lengths[lane];
  }
  const uint64_t leave = head.lengths[kTokenLane];
  transaction_->PushUndo([tree = tree_, id = op.node, parent = op.other, leave] {
    const auto undone = tree->nodes_.find(id);
    if (undone == tree->nodes_.end()) return;
    if (Node* const left = tree->MutableNode(parent); left != nullptr) {
      left->refs.erase({leave, Ref::kEdge, id});
      --left->users;
    }
    tree->memory_bytes_ -= undone->second->charge;
    --undone->second->use->nodes;
    tree->nodes_.erase(undone);
    --tree->counts_.nodes;
  });
  tree_->nodes_.emplace(op.node, std::move(made));
  ++tree_->counts_.nodes;
  ++node->use->nodes;
  if (Node* const left = tree_->MutableNode(op.other); left != nullptr) {
    ++left->users;
    if (CAIRN_KEPT(kLiveFork)) left->refs.insert({leave, Ref::kEdge, op.node});
    NeedKv(left);
  }
  tree_->Charge(node);
  tree_->Touch(node);
  UseId(op.node);
  return node;
}

Status TreeChanges::ApplyAppend(const Op& op, std::span<const Part> parts) {
  Head* const head = tree_->MutableHead(op.branch);
  if (head == nullptr) return Unfit(op, "no such branch");
  if (op.position != head->lengths[kTokenLane]) {
    return Unfit(op, "it was " + std::to_string(op.position) + " tokens long, not " +
                         std::to_string(head->lengths[kTokenLane]));
  }
  Node* node = nullptr;
  if ((op.flags & kOpNewNode) != 0) {
    if (op.other != head->node || !IsNumber(op.node) || tree_->KnowsNode(op.node)) {
      return Unfit(op, "bad new node");
    }
    if (op.other != 0 && tree_->FindNode(op.other) == nullptr) return Unfit(op, "no parent");
    node = MakeNode(op, *head);
  } else {
    node = tree_->MutableNode(op.node);
    if (node == nullptr || head->node != op.node) return Unfit(op, "bad node");
    for (size_t lane = 0; lane < node->lanes.size(); ++lane) {
      if (node->lanes[lane].end != head->lengths[lane]) return Unfit(op, "not at the node's end");
    }
  }
  transaction_->PushUndo(
      [tree = tree_, id = op.branch, before = head->updated_at_ns, evicted = head->kv_evicted] {
        tree->heads_.at(id).updated_at_ns = before;
        tree->heads_.at(id).kv_evicted = evicted;
      });
  head->updated_at_ns = op.time_ns;
  head->used_at_ns = std::max(head->used_at_ns, op.time_ns);
  head->kv_evicted = false;
  tree_->Touch(head);
  touched_.push_back(node->id);
  if (op.table.number != 0 || !op.sealed.empty()) {
    uint64_t stored_bytes = 0;
    for (const SealedRange& range : op.sealed) {
      if (range.node != op.node || range.lane >= node->lanes.size()) {
        return Unfit(op, "its table holds something else");
      }
      stored_bytes += range.stored_bytes;
    }
    if (!IsNumber(op.table.number) || stored_bytes == 0) {
      return Unfit(op, "no table, or nothing in it");
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
  // Of the states only the last that was there may have been replaced.
  const auto last = [](const std::vector<Mark>& marks) {
    return marks.empty() ? Mark() : marks.back();
  };
  const auto cut_back = [tree = tree_](std::vector<Mark>* marks, size_t count, const Mark& before) {
    marks->resize(count);
    if (count == 0 || marks->back().place == before.place) return;
    tree->UseTable(before.place, 1, 1);
    marks->back() = before;
  };
  const Tree::Recount recount(tree_, *node);
  tree_->Touch(node);
  transaction_->PushUndo([tree = tree_, cut_back, node, ends, samplers = node->samplers.size(),
                          metadata = node->metadata.size(), sampler = last(node->samplers),
                          metadatum = last(node->metadata), spans = node->spans.size()] {
    const Tree::Recount undone(tree, *node);
    for (size_t lane = 0; lane < ends.size(); ++lane) {
      std::vector<Extent>& extents = node->lanes[lane].extents;
      while (!extents.empty() && extents.back().begin >= ends[lane]) {
        tree->UseExtent(node, lane, extents.back(), -1);
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
    if (lengths[lane] > node->lanes[kTokenLane].end) return Unfit(op, "KV beyond the tokens");
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
      tree_->UseTable(marks.back().place, 1, -1);
      marks.pop_back();
      Node::Dumped& dumped = node->dumped;
      (range.lane == kSamplerLane ? dumped.samplers : dumped.metadata).Changed(marks.size());
    }
    marks.push_back({range.begin, range.strip, place});
    if (place.log.segment != 0) NoteLogged(place.log.segment, node->id);
    return Status::Ok();
  }
  const bool no_lane = range.lane >= node->lanes.size();
  const bool gaps = !no_lane && range.lane != kTokenLane &&
                    MayHaveGaps(tree_->models_.at(node->model)->groups[range.lane - 1]);
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
    tree_->UseExtent(node, range.lane, gap, 1);
  }
  // Commit finds the others from the lane's end.
  if (gaps && !place.known()) filled_.push_back({node->id, range.lane, range.begin});
  lane.extents.push_back({.begin = range.begin,
                          .count = static_cast<uint32_t>(range.count),
                          .op_index = op_index_,
                          .place = place,
                          .prefix_bytes = as.prefix_bytes,
                          .exact = as.exact || range.lane == kTokenLane});
  tree_->UseExtent(node, range.lane, lane.extents.back(), 1);
  if (place.known()) lane.extents.back().op_index = 0;  // A part is a record of one op.
  if (place.log.segment != 0) NoteLogged(place.log.segment, node->id);
  lane.end = range.begin + range.count;
  return Status::Ok();
}

// To one length a lane; states and spans go with the tokens. A span that the cut goes through ends
// there: what is appended later is not its content.
void TreeChanges::CutNode(Node* node, const std::vector<uint64_t>& lengths) {
  const uint64_t length = lengths[kTokenLane];
  // Only what is cut is copied; all of it, and the note of how to undo it, before the first change.
  struct LaneCut {
    uint64_t end = 0, length = 0;
    std::vector<Extent> extents;  // Those changed or removed, in order.
    bool splits() const { return !extents.empty() && extents.front().begin < length; }
  };
  struct Cut {
    std::vector<LaneCut> lanes;
    std::vector<Mark> samplers, metadata;
    std::vector<ContentSpan> spans;  // Those changed or removed.
    bool splits_span = false;
  };
  const auto cut = std::make_shared<Cut>();
  cut->lanes.resize(node->lanes.size());
  for (size_t i = 0; i < cut->lanes.size(); ++i) {
    const Lane& lane = node->lanes[i];
    const auto first = std::partition_point(
        lane.extents.begin(), lane.extents.end(),
        [&](const Extent& extent) { return extent.begin + extent.count <= lengths[i]; });
    cut->lanes[i] = {lane.end, lengths[i], {first, lane.extents.end()}};
  }
  const auto cut_marks = [&](const std::vector<Mark>& marks) {
    const auto first = std::partition_point(
        marks.begin(), marks.end(), [&](const Mark& mark) { return mark.position <= length; });
    return std::vector<Mark>(first, marks.end());
  };
  cut->samplers = cut_marks(node->samplers);
  cut->metadata = cut_marks(node->metadata);
  const auto first_span =
      std::partition_point(node->spans.begin(), node->spans.end(),
                           [&](const ContentSpan& span) { return span.end <= length; });
  cut->spans.assign(first_span, node->spans.end());
  cut->splits_span = !cut->spans.empty() && cut->spans.front().begin < length;
  std::function<void()> undo = [tree = tree_, node, cut] {
    const Tree::Recount undone(tree, *node);
    for (size_t i = 0; i < cut->lanes.size(); ++i) {
      Lane& lane = node->lanes[i];
      const LaneCut& was = cut->lanes[i];
      if (was.splits()) {
        tree->UseExtent(node, i, lane.extents.back(), -1);
        lane.extents.pop_back();
      }
      for (const Extent& extent : was.extents) tree->UseExtent(node, i, extent, 1);
      lane.extents.insert(lane.extents.end(), was.extents.begin(), was.extents.end());
      lane.end = was.end;
    }
    for (const Mark& mark : cut->samplers) tree->UseTable(mark.place, 1, 1);
    for (const Mark& mark : cut->metadata) tree->UseTable(mark.place, 1, 1);
    node->samplers.insert(node->samplers.end(), cut->samplers.begin(), cut->samplers.end());
    node->metadata.insert(node->metadata.end(), cut->metadata.begin(), cut->metadata.end());
    if (cut->splits_span) node->spans.pop_back();
    node->spans.insert(node->spans.end(), cut->spans.begin(), cut->spans.end());
  };
  transaction_->ReserveUndo(1);

  tree_->Touch(node);
  const Tree::Recount recount(tree_, *node);
  for (const Mark& mark : cut->samplers) tree_->UseTable(mark.place, 1, -1);
  for (const Mark& mark : cut->metadata) tree_->UseTable(mark.place, 1, -1);
  node->samplers.resize(node->samplers.size() - cut->samplers.size());
  node->metadata.resize(node->metadata.size() - cut->metadata.size());
  node->spans.resize(node->spans.size() - cut->spans.size() + (cut->splits_span ? 1 : 0));
  if (cut->splits_span) node->spans.back().end = length;
  node->dumped.samplers.Changed(node->samplers.size());
  node->dumped.metadata.Changed(node->metadata.size());
  node->dumped.spans.Changed(node->spans.size() - (cut->splits_span ? 1 : 0));
  for (size_t i = 0; i < cut->lanes.size(); ++i) {
    Lane& lane = node->lanes[i];
    const LaneCut& was = cut->lanes[i];
    lane.extents.resize(lane.extents.size() - was.extents.size());
    node->dumped.LaneChanged(i, lane.extents.size());
    lane.end = std::max(lane.start, std::min(lane.end, was.length));
    for (const Extent& extent : was.extents) tree_->UseExtent(node, i, extent, -1);
    if (was.splits()) {
      Extent head_part = was.extents.front();
      head_part.count = static_cast<uint32_t>(was.length - head_part.begin);
      lane.extents.push_back(head_part);
      tree_->UseExtent(node, i, head_part, 1);
    }
  }
  transaction_->PushUndo(std::move(undo));
}

// The ranges are those of ResolveSeal, so they begin and end with extents.
Status TreeChanges::ApplySeal(const Op& op) {
  if (!IsNumber(op.other) || op.sealed.empty()) {
    return Unfit(op, "no table, or nothing in it");
  }
  transaction_->ReserveUndo(2 * (1 + op.sealed.size()));
  for (const SealedRange& range : op.sealed) {
    Node* const node = tree_->MutableNode(range.node);
    if (node == nullptr) return Unfit(op, "no node " + std::to_string(range.node));
    NameTable({op.other, op.position}, range.stored_bytes);
    const Place place{
        .log = {}, .table = op.other, .positions = range.count, .stored_bytes = range.stored_bytes};
    const bool state = range.lane == kSamplerLane || range.lane == kMetadataLane;
    const Status status = state                             ? SealMark(node, range, place)
                          : range.lane < node->lanes.size() ? SealLane(node, range, place)
                                                            : Unfit(op, "no such lane");
    CAIRN_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

// From now on the tree knows the table; `stored_bytes` more of it were put to use.
void TreeChanges::NameTable(const OpTable& table, uint64_t stored_bytes) {
  const bool is_new = !tree_->tables_.contains(table.number);
  transaction_->PushUndo([tree = tree_, is_new, number = table.number, stored_bytes] {
    const auto named = tree->tables_.find(number);
    if (named == tree->tables_.end()) return;
    named->second.sealed_bytes -= stored_bytes;
    if (is_new) tree->tables_.erase(named);
  });
  const auto use = tree_->tables_.try_emplace(table.number, TableUse{table.bytes, 0, 0}).first;
  use->second.sealed_bytes += stored_bytes;
  use->second.dirty = true;
}

Status TreeChanges::SealLane(Node* node, const SealedRange& range, const Place& place) {
  std::vector<Extent>& extents = node->lanes[range.lane].extents;
  const auto first = std::partition_point(extents.begin(), extents.end(),
                                          [&](const Extent& e) { return e.begin < range.begin; });
  const auto last = std::partition_point(
      first, extents.end(), [&](const Extent& e) { return e.begin < range.begin + range.count; });
  if (first == last || first->begin != range.begin ||
      std::prev(last)->begin + std::prev(last)->count != range.begin + range.count) {
    return Status(StatusCode::kCorruption,
                  "seal of node " + std::to_string(range.node) + ", lane " +
                      std::to_string(range.lane) + ": [" + std::to_string(range.begin) + ", " +
                      std::to_string(range.begin + range.count) + ") are not whole extents");
  }
  const bool exact = first->exact;
  if (std::any_of(first, last, [&](const Extent& e) { return e.exact != exact; })) {
    return Status(StatusCode::kCorruption, "seal of node " + std::to_string(range.node) +
                                               ", lane " + std::to_string(range.lane) +
                                               ": a fragment of exact and approximate KV");
  }
  ReplaceExtents(node, range.lane, static_cast<size_t>(first - extents.begin()),
                 static_cast<size_t>(last - extents.begin()),
                 {{.begin = range.begin, .count = range.count, .place = place, .exact = exact}});
  return Status::Ok();
}

// Extents [first, last) of a lane give way to others of the same positions.
void TreeChanges::ReplaceExtents(Node* node, size_t lane, size_t first, size_t last,
                                 std::vector<Extent> now) {
  std::vector<Extent>& extents = node->lanes[lane].extents;
  extents.reserve(extents.size() + now.size());
  std::vector<Extent> before(extents.begin() + static_cast<ptrdiff_t>(first),
                             extents.begin() + static_cast<ptrdiff_t>(last));
  const auto swap = [tree = tree_, node, lane, &extents, first](size_t count,
                                                                const std::vector<Extent>& into) {
    const Tree::Recount recount(tree, *node);
    const auto at = extents.begin() + static_cast<ptrdiff_t>(first);
    const auto end = at + static_cast<ptrdiff_t>(count);
    for (auto extent = at; extent != end; ++extent) tree->UseExtent(node, lane, *extent, -1);
    if (count == into.size()) {
      std::copy(into.begin(), into.end(), at);  // What follows stays where it is.
    } else {
      extents.erase(at, end);
      extents.insert(extents.begin() + static_cast<ptrdiff_t>(first), into.begin(), into.end());
    }
    for (const Extent& extent : into) tree->UseExtent(node, lane, extent, 1);
  };
  tree_->Touch(node);
  node->dumped.LaneChanged(lane, first);
  transaction_->PushUndo(
      [swap, count = now.size(), before = std::move(before)] { swap(count, before); });
  swap(last - first, now);
}

Status TreeChanges::SealMark(Node* node, const SealedRange& range, const Place& place) {
  std::vector<Mark>& marks = range.lane == kSamplerLane ? node->samplers : node->metadata;
  const auto mark = std::partition_point(marks.begin(), marks.end(),
                                         [&](const Mark& m) { return m.position < range.begin; });
  if (mark == marks.end() || mark->position != range.begin) {
    return Status(StatusCode::kCorruption, "seal of node " + std::to_string(range.node) +
                                               ": no state at " + std::to_string(range.begin));
  }
  tree_->Touch(node);
  Node::Dumped& dumped = node->dumped;
  (range.lane == kSamplerLane ? dumped.samplers : dumped.metadata)
      .Changed(static_cast<size_t>(mark - marks.begin()));
  transaction_->PushUndo([tree = tree_, mark, before = mark->place] {
    tree->UseTable(mark->place, 1, -1);
    tree->UseTable(before, 1, 1);
    mark->place = before;
  });
  tree_->UseTable(mark->place, 1, -1);
  tree_->UseTable(place, 1, 1);
  mark->place = place;
  return Status::Ok();
}

}  // namespace cairn::engine
