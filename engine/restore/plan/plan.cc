// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/plan.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/text.h"
#include "base/io/world.h"
#include "engine/config/constants.h"
#include "engine/restore/plan/restorable.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/retention.h"
#include "wal/segment_files.h"

namespace cairn::engine {

namespace {

// One job for each record: a record with several wanted lanes is read once.
std::vector<RecordJob> MergeJobs(std::vector<RecordJob> jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const RecordJob& a, const RecordJob& b) { return a.location < b.location; });
  std::vector<RecordJob> merged;
  for (RecordJob& job : jobs) {
    if (merged.empty() || merged.back().location != job.location) {
      merged.push_back(std::move(job));
      continue;
    }
    merged.back().read_bytes = std::max(merged.back().read_bytes, job.read_bytes);
    merged.back().pieces.insert(merged.back().pieces.end(), job.pieces.begin(), job.pieces.end());
  }
  return merged;
}

void AddHole(KvHole hole, std::vector<KvHole>* holes) {
  if (hole.begin >= hole.end) return;
  if (!holes->empty() && holes->back().group == hole.group && holes->back().end == hole.begin) {
    holes->back().end = hole.end;
  } else {
    holes->push_back(hole);
  }
}

// For absent extents it notes what is needed instead.
void AddLane(const Tree& tree, const Head& head, uint32_t lane, uint64_t begin, uint64_t end,
             const NeededPositions& needed, RestorePlan* plan, std::vector<KvHole>* holes,
             uint32_t view = 0, int64_t shift = 0) {
  for (const LanePiece& piece : CollectLane(tree, head, lane, begin, end)) {
    if (!piece.extent.place.absent()) {
      AddExtent(piece.node, lane, piece.extent, piece.begin, piece.end, plan, view, shift);
      continue;
    }
    AddHole({lane - 1, piece.begin, std::min(piece.end, needed.sinks_end)}, holes);
    AddHole({lane - 1, std::max(piece.begin, needed.begin), std::min(piece.end, needed.end)},
            holes);
  }
}

std::string EvictedText(const ModelSpec& model, const std::vector<KvHole>& holes) {
  constexpr size_t kShown = 4;
  std::string text = "KV that was evicted, or never given:";
  for (size_t i = 0; i < std::min(holes.size(), kShown); ++i) {
    text += (i == 0 ? " group " : ", group ") + Quoted(model.groups[holes[i].group].name) +
            " positions [" + std::to_string(holes[i].begin) + ", " + std::to_string(holes[i].end) +
            ")";
  }
  if (holes.size() > kShown) text += " and " + std::to_string(holes.size() - kShown) + " more";
  return text;
}

// The source's position at `target` of the view, or the nearest there is.
uint64_t SourceOf(uint64_t target, int64_t shift) {
  if (shift > 0) return target - std::min(target, static_cast<uint64_t>(shift));
  return target + std::min(UINT64_MAX - target, uint64_t{0} - static_cast<uint64_t>(shift));
}

// The same positions of the source.
NeededPositions InSource(const NeededPositions& needed, int64_t shift) {
  return {SourceOf(needed.sinks_end, shift), SourceOf(needed.begin, shift),
          SourceOf(needed.end, shift)};
}

// Plans one source.
class SourcePlanner {
 public:
  SourcePlanner(const Tree& tree, const Head& head, const RestoreSource& source,
                const RestoreRequest& request, uint64_t several_end)
      : tree_(tree),
        head_(head),
        request_(request),
        shift_(source.shift),
        foreign_(source.foreign),
        whole_(source.whole),
        present_(source.needed_end == UINT64_MAX && several_end == 0),
        needed_end_(source.needed_end != 0 ? source.needed_end : source.end),
        several_end_(several_end) {
    plan_.model = tree.FindModel(head.model);
    plan_.model_id = head.model;
    plan_.length = several_end == 0 ? head.lengths[kTokenLane] : 0;
    plan_.ns = head.ns;
  }

  Result<RestorePlan> Plan(Range range) {
    range_ = range;
    plan_.begin = TargetOf(range.begin, shift_);
    plan_.end = TargetOf(range.end, shift_);
    if (!request_.tokens.empty()) {
      AddLane(tree_, head_, kTokenLane, range.begin, range.end, {}, &plan_, &holes_, 0, shift_);
    }
    if (request_.into != nullptr) CAIRN_RETURN_IF_ERROR(AddKv(*request_.into));
    for (RecordJob& job : plan_.jobs) {
      for (RecordPiece& piece : job.pieces) piece.foreign = foreign_;
    }
    for (SealedPiece& piece : plan_.sealed) piece.foreign = foreign_;
    plan_.jobs = MergeJobs(std::move(plan_.jobs));
    return std::move(plan_);
  }

 private:
  Status AddKv(const KvView& into) {
    CAIRN_RETURN_IF_ERROR(ValidateKvView(*plan_.model, into, KvUse::kRestore));
    const uint64_t common = CommonLength(*plan_.model, head_.lengths, range_.end);
    if (request_.require_kv || several_end_ != 0) AddLagging(into);
    for (uint32_t i = 0; i < into.groups.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(AddGroup(into, i, common));
    }
    if (holes_.empty()) return Status::Ok();
    std::string text = EvictedText(*plan_.model, holes_);
    if (several_end_ == 0) {
      text += "; restorable up to position " +
              std::to_string(TargetOf(RestorableInstead(into, common), shift_));
    }
    return Status(StatusCode::kEvicted, text);
  }

  // KV of one view of a group, for a restore of all groups at `common` positions.
  Status AddGroup(const KvView& into, uint32_t index, uint64_t common) {
    const GroupView& view = into.groups[index];
    const LayerGroup& group = plan_.model->groups[view.group];
    const uint32_t lane = 1 + view.group;
    const uint64_t length =
        group.optional ? LengthWithin(group, head_.lengths[lane], common) : common;
    const uint64_t room_begin = SourceOf(view.position, shift_);
    const uint64_t room_end = SourceOf(view.position + view.count, shift_);
    const uint64_t first = std::max(range_.begin, room_begin);
    const bool has_room = first < std::min(range_.end, room_end);
    if (present_) {
      const uint64_t end = std::min(range_.end, room_end);
      AddLane(tree_, head_, lane, first, end, {}, &plan_, &holes_, index, shift_);
      plan_.kv_ends.push_back(TargetOf(std::min(end, head_.lengths[lane]), shift_));
      return Status::Ok();
    }
    CAIRN_RETURN_IF_ERROR(CheckStates(group, length, has_room,
                                      /*has_row=*/room_begin < length && length <= room_end));
    // What a shifted chunk needs begins within a chunk of the source.
    if (shift_ != 0 && group.retention.kind == Retention::kChunkLocal) {
      AddHole({view.group, std::max(head_.lengths[lane], range_.begin), length}, &holes_);
    }
    const uint64_t end = std::min(length, room_end);
    // What stands behind one of several attends to what is needed where it ends.
    const uint64_t target_end = TargetOf(several_end_ != 0 ? needed_end_ : length, shift_);
    NeededPositions needed = InSource(Needed(group, target_end), shift_);
    if (whole_) needed = {.sinks_end = 0, .begin = range_.begin, .end = range_.end};
    AddLane(tree_, head_, lane, first, end, needed, &plan_, &holes_, index, shift_);
    // Of several, one that has no room says nothing of how far KV reaches.
    const uint64_t kv_end = std::max(end, std::min(range_.begin, length));
    plan_.kv_ends.push_back(several_end_ != 0 && !has_room ? 0 : TargetOf(kv_end, shift_));
    return Status::Ok();
  }

  Status CheckStates(const LayerGroup& group, uint64_t length, bool has_room, bool has_row) const {
    const Retention kind = group.retention.kind;
    if (kind != Retention::kCheckpoint && kind != Retention::kPerRequest) return Status::Ok();
    if (several_end_ != 0) {
      return Status(StatusCode::kInvalidArgument,
                    "group " + Quoted(group.name) +
                        " has states: those of several sources cannot be put together");
    }
    if (kind == Retention::kPerRequest && shift_ != 0) {
      return Status(StatusCode::kInvalidArgument,
                    "group " + Quoted(group.name) + " has a state, which no shift can move");
    }
    if (kind == Retention::kPerRequest || length <= range_.begin || !has_room || has_row) {
      return Status::Ok();
    }
    return Status(StatusCode::kInvalidArgument,
                  "group " + Quoted(group.name) + ": the branch is restored at position " +
                      std::to_string(TargetOf(length, shift_)) +
                      ", the view has no room for its state there, row " +
                      std::to_string(TargetOf(length, shift_) - 1));
  }

  // Lacking KV of groups that must reach the end of the range: those that are not optional, and
  // those of the view.
  void AddLagging(const KvView& into) {
    const std::vector<LayerGroup>& groups = plan_.model->groups;
    for (uint32_t i = 0; i < groups.size(); ++i) {
      const bool wanted = std::any_of(into.groups.begin(), into.groups.end(),
                                      [&](const GroupView& view) { return view.group == i; });
      const uint64_t kv_length = head_.lengths[1 + i];
      if (groups[i].optional && !wanted) continue;
      if (several_end_ != 0) {
        AddHole({i, std::max(kv_length, range_.begin), range_.end}, &holes_);
        continue;
      }
      if (LengthWithin(groups[i], kv_length, range_.end) == range_.end) continue;
      const NeededPositions needed =
          InSource(Needed(groups[i], TargetOf(range_.end, shift_)), shift_);
      AddHole({i, kv_length, needed.sinks_end}, &holes_);
      AddHole({i, std::max(kv_length, needed.begin), needed.end}, &holes_);
    }
  }

  // The next best length for a restore that the holes prevent.
  uint64_t RestorableInstead(const KvView& into, uint64_t common) const {
    std::vector<uint64_t> from(plan_.model->groups.size(), range_.begin);
    std::vector<bool> seen(from.size(), false);
    for (size_t i = 0; i < from.size(); ++i) {
      const bool missed = std::any_of(holes_.begin(), holes_.end(),
                                      [&](const KvHole& hole) { return hole.group == i; });
      if (plan_.model->groups[i].optional && !missed) from[i] = kGroupIsNotNeeded;
    }
    for (const GroupView& view : into.groups) {
      uint64_t& own = from[view.group];
      const bool second = seen[view.group];  // It lies behind the first.
      seen[view.group] = true;
      if (own != kGroupIsNotNeeded && !second) {
        own = std::max(own, SourceOf(view.position, shift_));
      }
    }
    return RestorableLength(tree_, head_, common, from);
  }

  const Tree& tree_;
  const Head& head_;
  const RestoreRequest& request_;
  const int64_t shift_;
  const bool foreign_, whole_, present_;
  const uint64_t needed_end_;
  const uint64_t several_end_;
  Range range_{};
  RestorePlan plan_;
  std::vector<KvHole> holes_;  // In positions of the source.
};

}  // namespace

std::string PlaceText(const wal::Location& at) {
  return wal::SegmentPath(kLogDirectory, at.segment) + ": offset " + std::to_string(at.offset);
}

void AddExtent(uint64_t node, uint32_t lane, const Extent& extent, uint64_t begin, uint64_t end,
               RestorePlan* plan, uint32_t view, int64_t shift) {
  const Place& place = extent.place;
  if (place.table != 0) {
    plan->sealed.push_back(
        {place.table, place.FragmentNode(node), lane, begin, end, shift, extent.exact, view});
    return;
  }
  const uint32_t read_bytes = lane == kTokenLane ? extent.prefix_bytes : place.log.bytes;
  plan->jobs.push_back(
      {place.log,
       read_bytes,
       {{lane, extent.op_index, extent.begin, begin, end, shift, extent.exact, view}}});
}

uint64_t HashOfPlace(const Place& place) {
  const std::array<uint64_t, 4> words = {place.log.segment, place.log.epoch, place.log.offset,
                                         place.table};
  return Hash(std::as_bytes(std::span(words))) | 1;
}

uint64_t HashOfPlaces(const RestorePlan& plan) {
  std::vector<uint64_t> words;
  for (const RecordJob& job : plan.jobs) {
    words.insert(words.end(), {job.location.segment, job.location.epoch, job.location.offset});
  }
  for (const SealedPiece& piece : plan.sealed) {
    words.insert(words.end(), {piece.table, piece.node, piece.lane, piece.begin, piece.end});
  }
  return Hash(std::as_bytes(std::span(words))) | 1;
}

Result<Range> RangeOf(uint64_t begin, uint64_t end, uint64_t length, const char* what) {
  const uint64_t range_end = end == UINT64_MAX ? length : end;
  if (begin <= range_end && range_end <= length) return Range{begin, range_end};
  return Status(StatusCode::kInvalidArgument, std::string(what) + " of [" + std::to_string(begin) +
                                                  ", " + std::to_string(range_end) +
                                                  ") from a branch of " + std::to_string(length) +
                                                  " tokens");
}

Head HeadOfNode(const Node& node) {
  Head head;
  head.node = node.id;
  head.model = node.model;
  for (const Lane& lane : node.lanes) head.lengths.push_back(lane.end);
  return head;
}

Result<RestorePlan> PlanRestore(const Tree& tree, const Head& head, const RestoreSource& source,
                                const RestoreRequest& request, uint64_t several_end) {
  CAIRN_ASSIGN_OR_RETURN(const Range range,
                         RangeOf(source.begin, source.end, head.lengths[kTokenLane], "restore"));
  return SourcePlanner(tree, head, source, request, several_end).Plan(range);
}

Status AddPlan(RestorePlan more, RestorePlan* plan) {
  if (plan->model == nullptr) {
    *plan = std::move(more);
    return Status::Ok();
  }
  if (more.model_id != plan->model_id) {
    return Status(StatusCode::kModelMismatch, "restore: the sources are of several models");
  }
  plan->begin = std::min(plan->begin, more.begin);
  plan->end = std::max(plan->end, more.end);
  for (size_t i = 0; i < plan->kv_ends.size(); ++i) {
    plan->kv_ends[i] = std::max(plan->kv_ends[i], more.kv_ends[i]);
  }
  plan->jobs.insert(plan->jobs.end(), more.jobs.begin(), more.jobs.end());
  plan->sealed.insert(plan->sealed.end(), more.sealed.begin(), more.sealed.end());
  return Status::Ok();
}

void MergePlans(RestorePlan* plan) { plan->jobs = MergeJobs(std::move(plan->jobs)); }

RestorePlan PlanPrefetch(const Tree& tree, const Head& head, uint64_t begin, uint64_t end) {
  RestorePlan plan;
  std::vector<KvHole> holes;  // The restore will report them.
  plan.model = tree.FindModel(head.model);
  plan.begin = begin;
  plan.end = end;
  plan.length = head.lengths[kTokenLane];
  plan.ns = head.ns;
  AddLane(tree, head, kTokenLane, begin, end, {}, &plan, &holes);
  for (uint32_t lane = 1; lane <= plan.model->groups.size(); ++lane) {
    const NeededPositions needed =
        Needed(plan.model->groups[lane - 1], std::min(end, head.lengths[lane]));
    AddLane(tree, head, lane, begin, needed.sinks_end, {}, &plan, &holes);
    AddLane(tree, head, lane, std::max(begin, needed.begin), needed.end, {}, &plan, &holes);
  }
  plan.jobs.clear();
  return plan;
}

Result<OpenPiece> FindFragment(const ModelSpec& model, const SealedPiece& piece,
                               std::shared_ptr<sstable::SnapshotTable> table, uint32_t layer_begin,
                               uint32_t layer_end) {
  const auto missing = [&](const std::string& what) {
    return Status(StatusCode::kCorruption,
                  sstable::SnapshotTablePath(kTableDirectory, piece.table) + ": node " +
                      std::to_string(piece.node) + ", lane " + std::to_string(piece.lane) +
                      ", positions [" + std::to_string(piece.begin) + ", " +
                      std::to_string(piece.end) + "): " + what + "; restorable up to position " +
                      std::to_string(piece.Target(piece.begin)));
  };
  CAIRN_ASSIGN_OR_RETURN(const auto found, table->Find(piece.node, piece.lane, piece.begin));
  if (!found.has_value() || found->node != piece.node || found->lane != piece.lane ||
      found->begin > piece.begin || found->end() < piece.end) {
    return missing("no fragment holds them");
  }
  FragmentLayout layout(model, piece.lane);
  const bool state = piece.lane == kSamplerLane || piece.lane == kMetadataLane;
  if ((found->slices != layout.slices() && !state) || found->page_rows != layout.page_rows()) {
    return missing("the fragment is cut as for another model");
  }
  const bool exact = (found->flags & sstable::kApproximateFragment) == 0;
  if (exact != piece.exact) {
    return missing(piece.exact ? "the fragment is approximate" : "the fragment is exact");
  }
  const auto page_of = [&](uint64_t position) {
    return static_cast<uint32_t>((position - found->begin) / found->page_rows);
  };
  uint32_t first_slice = 0, end_slice = 1;
  if (state) {
    end_slice = found->slices;
  } else if (piece.lane != kTokenLane && found->slices > 1) {
    first_slice = layer_begin * layout.slices_per_layer();
    end_slice = static_cast<uint32_t>(
        std::min<uint64_t>(found->slices, uint64_t{layer_end} * layout.slices_per_layer()));
  }
  OpenPiece open{.piece = piece,
                 .table = std::move(table),
                 .fragment = *found,
                 .layout = std::move(layout),
                 .first_slice = first_slice,
                 .end_slice = end_slice,
                 .first_page = page_of(piece.begin),
                 .end_page = page_of(piece.end - 1) + 1};
  open.missing = open.frames();
  return open;
}

std::vector<ReadWindow> PlanWindows(std::span<const ReadJob> jobs) {
  std::vector<ReadWindow> windows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const uint64_t begin = jobs[i].offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end = AlignUp(jobs[i].offset + jobs[i].bytes, io::kBlockBytes);
    if (!windows.empty()) {
      ReadWindow& last = windows.back();
      const uint64_t last_end = last.offset + last.bytes;
      if (jobs[last.first_job].SameFile(jobs[i]) && begin >= last.offset &&
          begin <= last_end + kReadGapBytes &&
          (end <= last_end || end - last.offset <= kReadWindowBytes)) {
        last.bytes = std::max(last_end, end) - last.offset;
        ++last.job_count;
        continue;
      }
    }
    windows.push_back({begin, end - begin, i, 1});
  }
  return windows;
}

}  // namespace cairn::engine
