// SPDX-License-Identifier: Apache-2.0
#include "engine/space/log_reclaimer.h"

#include <algorithm>
#include <vector>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/constants.h"

namespace cairn::engine {

// The last of the oldest segments that are given back together: at most as many bytes as a full
// segment, or as a share of the log's limit, and not pinned by appends under way. 0: none.
uint64_t LogReclaimer::LastToReclaim(std::span<const wal::SegmentInfo> segments) const {
  uint64_t last = 0, bytes = 0;
  const uint64_t most =
      std::max(means_.options->segment_bytes, means_.gauge->LogBytesMax() / kLogReclaimShare);
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    bytes += segments[i].file_bytes;
    if (i > 0 && bytes > most) break;
    if (segments[i + 1].first_sequence > means_.log->durable_sequence()) break;
    last = segments[i].number;
  }
  return std::min(last, means_.reader->pins().LowestOfParts() - 1);
}

Status LogReclaimer::ReclaimOldest(bool* reclaimed) {
  *reclaimed = false;
  const bool full = throttle_->IsFull();
  const std::vector<wal::SegmentInfo> segments = means_.log->Segments();
  Status status;
  if (segments.size() > 1) status = Guarded([&] { return ReclaimSegments(segments, reclaimed); });
  if (*reclaimed) {
    uint64_t bytes = 0;
    const uint64_t first_left = means_.log->Segments().front().number;
    for (const wal::SegmentInfo& segment : segments) {
      if (segment.number < first_left) bytes += segment.file_bytes;
    }
    means_.gate->GaveBack(bytes, means_.log->live_bytes());
  } else if (full && !means_.round->held() && !means_.rate_limiter->stopped()) {
    means_.gate->Open();  // Damage, or no room for a table: data goes on while there is room.
  }
  return status;
}

Status LogReclaimer::ReclaimSegments(std::span<const wal::SegmentInfo> segments, bool* reclaimed) {
  if (segments[1].first_sequence > means_.log->durable_sequence()) {
    // Writers refused for space will not sync this segment, so this thread does.
    if (!means_.gauge->DataIsShort() && !requests_->RoomIsShort() && !throttle_->IsFull())
      return Status::Ok();
    CAIRN_RETURN_IF_ERROR(means_.log->Flush(io::kNoDeadline));
  }
  const uint64_t first = segments.front().number;
  const uint64_t last = LastToReclaim(segments);
  if (last < first) {
    means_.round->MarkHeld(
        means_.reader->pins().HoldSegment(first));  // By the parts of a large append.
    return Status::Ok();
  }
  if (log_start_ <= last) {
    if (CAIRN_KEPT(kSealBeforeRetire)) CAIRN_RETURN_IF_ERROR(sealer_->SealUpTo(last));
    if (CAIRN_KEPT(kDumpBeforeRetire)) CAIRN_RETURN_IF_ERROR(flusher_->FlushTree());
    std::lock_guard lock(mutex_);
    if (means_.reader->pins().LowestOfParts() <= last) {
      means_.round->MarkHeld(means_.reader->pins().HoldSegment(last));
      return Status::Ok();
    }
    log_start_ = last + 1;
  }
  // No new reader begins in these segments: their live content is in tables, and readers of the
  // whole log begin at log_start_. Earlier readers have them pinned.
  uint64_t end = first;
  while (end <= last && !means_.reader->pins().HoldSegment(end)) ++end;
  means_.round->MarkHeld(end <= last);
  if (end == first) return Status::Ok();
  if (CAIRN_KEPT(kManifestBeforeRelease)) {
    CAIRN_RETURN_IF_ERROR(
        means_.manifest->Edit([&](Manifest* next) { next->log_start_segment = end; }));
  }
  means_.host->PublishHint();
  means_.round->KeepGoing(means_.log->ReleaseBelow(end));
  CAIRN_RETURN_IF_ERROR(dead_tables_->FreeRemoved(io::JoinPath(means_.directory, kLogDirectory)));
  means_.counters->retired_segments.fetch_add(end - first, std::memory_order_relaxed);
  *reclaimed = true;
  return Status::Ok();
}

}  // namespace cairn::engine
