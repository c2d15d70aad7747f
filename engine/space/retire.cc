// SPDX-License-Identifier: Apache-2.0
//
// Giving the oldest segments of the log back, when, and who waits for it.
#include <algorithm>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "engine/store_core.h"

namespace cairn {

// The last of the oldest segments that are given back together: those that hold no more than a full
// one, and are not needed by what is under way. 0: none.
uint64_t StoreCore::LastToRetire(std::span<const wal::SegmentInfo> segments) const {
  uint64_t last = 0, bytes = 0;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    bytes += segments[i].file_bytes;
    if (i > 0 && bytes > options_.segment_bytes) break;
    if (segments[i + 1].first_sequence > log_->durable_sequence()) break;
    last = segments[i].number;
  }
  return std::min(last, reader_.pins().LowestOfParts() - 1);
}

// Gives the oldest segments of the log back: what is alive in them goes into tables, the tree into
// the index. Nothing to do: the oldest is still written to, or somebody reads in it.
Status StoreCore::RetireOldest(bool* retired) {
  *retired = false;
  const bool full = LogIsFull();
  const std::vector<wal::SegmentInfo> segments = log_->Segments();
  Status status;
  if (segments.size() > 1) status = Guarded([&] { return RetireSome(segments, retired); });
  if (*retired) {
    uint64_t bytes = 0;
    const uint64_t first_left = log_->Segments().front().number;
    for (const wal::SegmentInfo& segment : segments) {
      if (segment.number < first_left) bytes += segment.file_bytes;
    }
    log_gate_.GaveBack(bytes, log_->live_bytes());
  } else if (full && !round_.held() && !pacer_.stopped()) {
    log_gate_.Open();  // Damage, or no room for a table: data goes on as far as there is any.
  }
  return status;
}

Status StoreCore::RetireSome(std::span<const wal::SegmentInfo> segments, bool* retired) {
  if (segments[1].first_sequence > log_->durable_sequence()) {
    // Nobody may sync any more who is refused for want of room.
    if (!gauge_.DataIsShort() && !RoomIsShort() && !LogIsFull()) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(log_->Flush(io::kNoDeadline));
  }
  const uint64_t first = segments.front().number;
  const uint64_t last = LastToRetire(segments);
  if (last < first) {
    round_.NoteHeld(reader_.pins().HoldSegment(first));  // By the parts of a large append.
    return Status::Ok();
  }
  if (log_start_ <= last) {
    if (CAIRN_KEPT(kSealBeforeRetire)) CAIRN_RETURN_IF_ERROR(SealUpTo(last));
    if (CAIRN_KEPT(kDumpBeforeRetire)) CAIRN_RETURN_IF_ERROR(flusher_.Dump());
    std::lock_guard lock(mutex_);
    if (reader_.pins().LowestOfParts() <= last) {
      round_.NoteHeld(reader_.pins().HoldSegment(last));
      return Status::Ok();
    }
    log_start_ = last + 1;
  }
  // Nobody begins to read there any more: what is alive of it is in tables, and whoever reads the
  // whole log begins at log_start_. Who began before that has it pinned.
  uint64_t end = first;
  while (end <= last && !reader_.pins().HoldSegment(end)) ++end;
  round_.NoteHeld(end <= last);
  if (end == first) return Status::Ok();
  if (CAIRN_KEPT(kManifestBeforeRelease)) {
    CAIRN_RETURN_IF_ERROR(
        manifest_.Edit([&](engine::Manifest* next) { next->log_start_segment = end; }));
  }
  PublishHint();
  round_.KeepGoing(log_->ReleaseBelow(end));
  CAIRN_RETURN_IF_ERROR(FreeRemoved(io::JoinPath(path_, engine::kLogDirectory)));
  space_counters_.retired_segments.fetch_add(end - first, std::memory_order_relaxed);
  *retired = true;
  return Status::Ok();
}

// Processes that end before the background did anything must not leave ever more segments. Waits
// for its rounds as long as they give some back; the one that is under way may have missed it.
void StoreCore::GiveBackAtClose() {
  if (space_thread_ == nullptr) return;
  uint64_t left = gauge_.ShortSegments();
  for (int vain = 0; vain < 2 && left > engine::kShortSegmentsMax;) {
    const uint32_t seen = signals_.rounds();
    if (pacer_.paused() || !log_->poisoned().ok()) return;
    KickSpace();
    signals_.AwaitRound(seen, io::kNoDeadline);
    const uint64_t now = gauge_.ShortSegments();
    vain = now < left ? 0 : vain + 1;
    left = now;
  }
}

// ---------------------------------------------------------------- who waits for it

// Not while the background is paused: then the log grows.
bool StoreCore::LogIsHeld(uint64_t bytes) const {
  return CAIRN_KEPT(kBoundOfLog) && log_gate_.Holds(log_->live_bytes(), bytes) && !pacer_.paused();
}

bool StoreCore::LogIsFull() const { return LogIsHeld(options_.segment_bytes); }

void StoreCore::SlowDown(uint64_t bytes, uint64_t deadline_ns) {
  const uint64_t live_bytes = log_->live_bytes();
  if (!log_gate_.Slows(live_bytes) || pacer_.paused()) return;
  NoteLogIsLong(live_bytes);
  const uint64_t waited_ns = log_gate_.Slow(live_bytes, bytes, deadline_ns);
  if (waited_ns != 0) append_delay_.Add(waited_ns);
}

Status StoreCore::WaitForLog(uint64_t bytes, uint64_t deadline_ns) {
  const uint32_t seen = log_gate_.word();
  if (!LogIsHeld(bytes)) return log_->WaitForRoom(deadline_ns);
  CAIRN_RETURN_IF_ERROR(CheckWritable());
  NoteLogIsLong(log_->live_bytes());
  KickSpace();
  const uint64_t began_ns = world_.scheduler->MonotonicNs();
  const bool in_time = log_gate_.Await(seen, deadline_ns);
  append_delay_.Add(world_.scheduler->MonotonicNs() - began_ns);
  if (in_time) return CheckWritable();
  return Status(StatusCode::kDeadlineExceeded, "the log stayed as long as log_bytes_max allows: " +
                                                   std::to_string(log_->live_bytes()) + " bytes");
}

void StoreCore::NoteLogIsLong(uint64_t live_bytes) {
  if (!log_gate_.BeginsEpisode()) return;
  space_counters_.log_limits.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(Guarded([&] {  // Without memory for the words it is counted only.
    OnEvent("log: " + std::to_string(live_bytes) + " bytes are live, of at most " +
            std::to_string(gauge_.LogBytesHeld()) +
            ": appends are slowed, and wait at the limit, while the oldest are sealed");
  }));
}

}  // namespace cairn
