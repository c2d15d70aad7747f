// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/restorable.h"

#include <algorithm>
#include <vector>

#include "engine/tree/memory/retention.h"

namespace cairn::engine {

PresentRuns::PresentRuns(const Tree& tree, const Head& head, uint32_t lane, uint64_t end)
    : tree_(tree),
      node_(tree.OnPath(head.node)),
      lane_(lane),
      limit_(std::min(end, head.lengths[lane])) {}

std::optional<PresentRuns::Piece> PresentRuns::NextPiece() {
  for (; node_ != nullptr; node_ = tree_.OnPath(node_->parent), extent_ = kNoExtentLookedUp) {
    const Lane& lane = node_->lanes[lane_];
    if (lane.start >= limit_) continue;
    const uint64_t end = limit_;
    if (lane.absent == 0) {
      limit_ = lane.start;
      return Piece{{limit_, end}, true};
    }
    if (extent_ == kNoExtentLookedUp) {
      extent_ = static_cast<size_t>(
          std::partition_point(lane.extents.begin(), lane.extents.end(),
                               [&](const Extent& extent) { return extent.begin < end; }) -
          lane.extents.begin());
    }
    const Extent& extent = lane.extents[--extent_];
    limit_ = extent.begin;
    return Piece{{limit_, end}, !extent.place.absent()};
  }
  return std::nullopt;
}

std::optional<PresentRuns::Run> PresentRuns::Below(uint64_t limit) {
  while (run_.begin >= run_.end || run_.begin >= limit) {
    run_ = {};
    while (const std::optional<Piece> piece = NextPiece()) {
      if (!piece->present && run_.end != 0) break;
      if (!piece->present) continue;
      run_ = {piece->run.begin, run_.end == 0 ? piece->run.end : run_.end};
    }
    if (run_.end == 0) return std::nullopt;
  }
  return Run{run_.begin, std::min(run_.end, limit)};
}

namespace {

// The first absent position in [from, end), or `end`.
uint64_t FirstAbsent(PresentRuns* runs, uint64_t from, uint64_t end) {
  uint64_t limit = end;
  while (limit > from) {
    const auto run = runs->Below(limit);
    if (!run.has_value() || run->end <= from) return from;
    if (run->begin <= from) return run->end;
    limit = run->begin;
  }
  return end;
}

// Finds positions at which the group can be restored, one after the other, each below the one
// before, from the last on.
class GroupSearch {
 public:
  GroupSearch(const Tree& tree, const Head& head, const LayerGroup& group, uint32_t lane,
              uint64_t from, uint64_t at_most)
      : group_(group),
        from_(from),
        kv_length_(head.lengths[lane]),
        longest_(at_most),
        runs_(tree, head, lane, at_most) {
    // If something is missing that is needed from the front on, the search ends there.
    uint64_t front = 0;
    switch (group.retention.kind) {
      case Retention::kAll: front = at_most; break;
      case Retention::kWindow: front = group.retention.sinks; break;
      case Retention::kPerRequest: front = 1; break;
      case Retention::kChunkLocal:
      case Retention::kCheckpoint: break;
    }
    front = std::min({front, at_most, kv_length_});
    PresentRuns from_front(tree, head, lane, front);
    const uint64_t absent = FirstAbsent(&from_front, from, front);
    if (absent < front) longest_ = absent;
  }

  uint64_t Last(uint64_t length) {
    length = LengthWithin(group_, kv_length_, std::min(length, longest_));
    switch (group_.retention.kind) {
      case Retention::kAll:
      case Retention::kPerRequest: return length;
      case Retention::kWindow: return LastWindow(group_.retention.window, length);
      case Retention::kCheckpoint: return LastWindow(1, length);
      case Retention::kChunkLocal: break;
    }
    const uint64_t chunk = length - length % group_.retention.chunk;
    return length <= from_ ? length : FirstAbsent(&runs_, std::max(chunk, from_), length);
  }

 private:
  uint64_t LastWindow(uint64_t window, uint64_t length) {
    while (length > from_) {
      const auto run = runs_.Below(length);
      if (!run.has_value() || run->end <= from_) return from_;
      const uint64_t begin = run->end - std::min(run->end, window);
      if (run->begin <= std::max(begin, from_)) return run->end;
      length = run->begin;
    }
    return length;
  }

  const LayerGroup& group_;
  const uint64_t from_, kv_length_;
  uint64_t longest_;
  PresentRuns runs_;
};

}  // namespace

uint64_t RestorableLength(const Tree& tree, const Head& head, uint64_t at_most,
                          std::span<const uint64_t> from) {
  const auto model = tree.FindModel(head.model);
  std::vector<GroupSearch> groups;
  for (uint32_t i = 0; i < model->groups.size(); ++i) {
    if (from[i] == kGroupIsNotNeeded) continue;
    groups.emplace_back(tree, head, model->groups[i], 1 + i, from[i], at_most);
  }
  for (uint64_t before = UINT64_MAX; before != at_most;) {
    before = at_most;
    for (GroupSearch& group : groups) at_most = group.Last(at_most);
  }
  return at_most;
}

uint64_t RestorableLength(const Tree& tree, const Head& head, uint64_t at_most) {
  const auto model = tree.FindModel(head.model);
  std::vector<uint64_t> from(model->groups.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    if (model->groups[i].optional) from[i] = kGroupIsNotNeeded;
  }
  return RestorableLength(tree, head, at_most, from);
}

}  // namespace cairn::engine
