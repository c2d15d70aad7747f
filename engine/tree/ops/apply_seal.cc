// SPDX-License-Identifier: Apache-2.0
//
// Seals: content that was read elsewhere is now in a table, except parts that have moved since.
#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/ops/tree_changes.h"

namespace cairn::engine {

// The ranges are those of ResolveSeal, so they begin and end with extents.
Status TreeChanges::ApplySeal(const Op& op) {
  if (!IsNumber(op.other) || op.sealed.empty()) {
    return DoesNotApply(op, "no table, or nothing in it");
  }
  transaction_->ReserveUndo(2 * (1 + op.sealed.size()));
  for (const SealedRange& range : op.sealed) {
    Node* const node = tree_->residency().MutableNode(range.node);
    if (node == nullptr) return DoesNotApply(op, "no node " + std::to_string(range.node));
    NameTable({op.other, op.position}, range.stored_bytes);
    const Place place{
        .log = {}, .table = op.other, .positions = range.count, .stored_bytes = range.stored_bytes};
    const bool state = range.lane == kSamplerLane || range.lane == kMetadataLane;
    const Status status = state                             ? SealMark(node, range, place)
                          : range.lane < node->lanes.size() ? SealLane(node, range, place)
                                                            : DoesNotApply(op, "no such lane");
    CAIRN_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

// From now on the tree knows the table; `stored_bytes` more of it are in use.
void TreeChanges::NameTable(const TableRef& table, uint64_t stored_bytes) {
  const bool is_new = !tree_->tables().contains(table.number);
  transaction_->PushUndo([tree = tree_, is_new, number = table.number, stored_bytes] {
    tree->table_usages().Unname(number, stored_bytes, is_new);
  });
  tree_->table_usages().Name(table, stored_bytes);
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

// Replaces extents [first, last) of a lane by others of the same positions.
void TreeChanges::ReplaceExtents(Node* node, size_t lane, size_t first, size_t last,
                                 std::vector<Extent> now) {
  std::vector<Extent>& extents = node->lanes[lane].extents;
  extents.reserve(extents.size() + now.size());
  std::vector<Extent> before(extents.begin() + static_cast<ptrdiff_t>(first),
                             extents.begin() + static_cast<ptrdiff_t>(last));
  const auto swap = [tree = tree_, node, lane, &extents, first](size_t count,
                                                                const std::vector<Extent>& into) {
    const Recount recount(tree, *node);
    const auto at = extents.begin() + static_cast<ptrdiff_t>(first);
    const auto end = at + static_cast<ptrdiff_t>(count);
    for (auto extent = at; extent != end; ++extent) tree->CountExtent(node, lane, *extent, -1);
    if (count == into.size()) {
      std::copy(into.begin(), into.end(), at);  // Later extents stay where they are.
    } else {
      extents.erase(at, end);
      extents.insert(extents.begin() + static_cast<ptrdiff_t>(first), into.begin(), into.end());
    }
    for (const Extent& extent : into) tree->CountExtent(node, lane, extent, 1);
  };
  tree_->dirty().Touch(node);
  node->flushed.LaneChanged(lane, first);
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
  tree_->dirty().Touch(node);
  Node::Flushed& flushed = node->flushed;
  (range.lane == kSamplerLane ? flushed.samplers : flushed.metadata)
      .Changed(static_cast<size_t>(mark - marks.begin()));
  transaction_->PushUndo([tree = tree_, mark, before = mark->place] {
    tree->CountMark(mark->place, -1);
    tree->CountMark(before, 1);
    mark->place = before;
  });
  tree_->CountMark(mark->place, -1);
  tree_->CountMark(place, 1);
  mark->place = place;
  return Status::Ok();
}

}  // namespace cairn::engine
