// SPDX-License-Identifier: Apache-2.0
#include "engine/background/log_reclaimer.h"

#include <algorithm>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/config/constants.h"

namespace cairn::engine {

// The last of the oldest segments that are given back together: at most as many bytes as a full
// segment, or as a share of the log's limit, and not pinned by appends under way. 0: none.
uint64_t LogReclaimer::LastToReclaim(std::span<const wal::SegmentInfo> segments) const {
  uint64_t last = 0, bytes = 0;
  const uint64_t most =
      std::max(deps_.options->segment_bytes, deps_.gauge->LogBytesMax() / kLogReclaimShare);
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    bytes += segments[i].file_bytes;
    if (i > 0 && bytes > most) break;
    if (segments[i + 1].first_sequence > deps_.log->durable_sequence()) break;
    last = segments[i].number;
  }
  return std::min(last, deps_.reader->pins().LowestOfParts() - 1);
}

// Whether somebody reads the segment. Notes who.
bool LogReclaimer::IsHeld(uint64_t segment) {
  Pins& pins = deps_.reader->pins();
  if (!pins.HoldSegment(segment)) return false;
  deps_.round->MarkHeld(true);
  deps_.round->SetLogHolder(pins.HolderOf(segment));
  return true;
}

Status LogReclaimer::ReclaimOldest(SpaceRound::Kind kind, bool* reclaimed) {
  *reclaimed = false;
  deps_.round->SetLogHolder(std::nullopt);
  const bool full = throttle_->IsFull();
  const std::vector<wal::SegmentInfo> segments = deps_.log->Segments();
  Status status;
  if (segments.size() > 1)
    status = CatchBadAlloc([&] { return ReclaimSegments(kind, segments, reclaimed); });
  if (*reclaimed) {
    uint64_t bytes = 0;
    const uint64_t first_left = deps_.log->Segments().front().number;
    for (const wal::SegmentInfo& segment : segments) {
      if (segment.number < first_left) bytes += segment.file_bytes;
    }
    deps_.gate->GaveBack(bytes, deps_.log->live_bytes());
  } else if (full && !deps_.round->held() && !deps_.rate_limiter->stopped()) {
    deps_.gate->Open();  // Damage, or no room for a table: data goes on while there is room.
  }
  return status;
}

Status LogReclaimer::ReclaimSegments(SpaceRound::Kind kind,
                                     std::span<const wal::SegmentInfo> segments, bool* reclaimed) {
  if (segments[1].first_sequence > deps_.log->durable_sequence()) {
    // Writers refused for space will not sync this segment, so this thread does.
    if (!deps_.gauge->DataIsShort() && !requests_->RoomIsShort() && !throttle_->IsFull())
      return Status::Ok();
    CAIRN_RETURN_IF_ERROR(deps_.log->Flush(io::kNoDeadline));
  }
  const uint64_t first = segments.front().number;
  const uint64_t last = LastToReclaim(segments);
  if (last < first) {
    static_cast<void>(IsHeld(first));  // By the parts of a large append.
    return Status::Ok();
  }
  if (log_start_ <= last) {
    const uint64_t begin = std::max(first, log_start_);  // What is below was decided before.
    CAIRN_RETURN_IF_ERROR(MoveStart(kind, segments.subspan(begin - first, last - begin + 1)));
    if (log_start_ <= last) return Status::Ok();
  }
  // Nobody begins to read a segment that becomes a spare: its live content is in tables, and a
  // reader of the whole log begins at log_start_. A reader that began before has pinned it.
  const std::vector<uint64_t> resting = Resting();
  uint64_t end = first;
  while (end <= last && (std::binary_search(resting.begin(), resting.end(), end) || !IsHeld(end))) {
    ++end;
  }
  if (end == first) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(Release(end));
  deps_.counters->retired_segments.fetch_add(end - first, std::memory_order_relaxed);
  *reclaimed = true;
  return Status::Ok();
}

// The log is not replayed from these segments any more, and content stays only in those that rest.
Status LogReclaimer::MoveStart(SpaceRound::Kind kind, std::span<const wal::SegmentInfo> leaving) {
  const uint64_t last = leaving.back().number;
  std::vector<wal::RestingSegment> chosen = resting_->Choose(kind, leaving);
  SegmentSet sealed{.first = logged_from_, .last = last, .but = Resting()};
  for (const wal::RestingSegment& segment : chosen) sealed.but.push_back(segment.number);
  if (CAIRN_KEPT(kSealBeforeRetire)) CAIRN_RETURN_IF_ERROR(sealer_->Seal(sealed));
  if (CAIRN_KEPT(kDumpBeforeRetire)) CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());
  chosen.insert(chosen.begin(), chosen_.begin(), chosen_.end());
  std::lock_guard lock(mutex_);
  if (deps_.reader->pins().LowestOfParts() <= last) {
    static_cast<void>(IsHeld(last));
    return Status::Ok();
  }
  logged_from_ = leaving.front().number;
  SetLogStart(last + 1);
  chosen_.swap(chosen);
  return Status::Ok();
}

// Those that rest, or are to: what the manifest names is not given back, whatever failed behind it.
std::vector<uint64_t> LogReclaimer::Resting() const {
  std::vector<uint64_t> numbers;
  for (const auto& segments : {deps_.manifest->resting(), chosen_}) {
    for (const wal::RestingSegment& segment : segments) numbers.push_back(segment.number);
  }
  return numbers;
}

// Segments below `end` leave the log.
Status LogReclaimer::Release(uint64_t end) {
  const std::vector<uint64_t> resting = Resting();
  const auto first_left =
      std::partition_point(chosen_.begin(), chosen_.end(),
                           [end](const wal::RestingSegment& one) { return one.number < end; });
  if (CAIRN_KEPT(kManifestBeforeRelease)) {
    CAIRN_RETURN_IF_ERROR(deps_.manifest->Edit([&](Manifest* next) {
      next->log_start_segment = end;
      next->resting.insert(next->resting.end(), chosen_.begin(), first_left);
    }));
  }
  chosen_.erase(chosen_.begin(), first_left);
  deps_.callbacks->PublishHint();
  deps_.round->KeepGoing(deps_.log->ReleaseBelow(end, resting));
  return dead_tables_->FreeRemoved(io::JoinPath(deps_.directory, kLogDirectory));
}

}  // namespace cairn::engine
