// SPDX-License-Identifier: Apache-2.0
//
// Group commit: which thread leads, and what a leader does. How others learn of it:
// log_progress.cc.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "wal/log_impl.h"

namespace cairn::wal {

static_assert(kMaxGroupsInFlight < kMaxGroups, "one is formed meanwhile");

// ---------------------------------------------------------------- choosing a leader

// The first group without a leader, if a caller wants it and it may go now.
LogImpl::Group* LogImpl::NextToLead() {
  if (!cause_.ok()) return nullptr;
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [](const Group* group) { return !group->led; });
  if (found == queue_.end()) return nullptr;
  Group* next = *found;
  if (next->first_sequence > write_wanted_) return nullptr;
  if (in_flight_ == 0) return next;
  // While the device is busy a group that can take more members should wait for them. The first
  // group of a segment must find everything before it written, and the first of an epoch must be
  // synced before anything follows it: only then does its header prove that the epoch was used.
  const bool may_join = in_flight_ < kMaxGroupsInFlight && !exclusive_ &&
                        next->state == GroupState::kClosed && !next->opens_segment;
  return may_join ? next : nullptr;
}

// A caller wants a written record durable, and no group that would sync it is coming.
bool LogImpl::SyncWanted() const {
  return cause_.ok() && in_flight_ == 0 && durable_wanted_ > durable_.load() &&
         written_.load() > durable_.load();
}

bool LogImpl::LeadSomething(bool by_waiter) {
  if (Group* next = NextToLead(); next != nullptr) {
    ++(by_waiter ? counters_.led_by_waiter : counters_.led_by_thread);
    Lead(*next);
    return true;
  }
  if (SyncWanted()) {
    LeadSync();
    return true;
  }
  return false;
}

// Makes sure that some thread takes up work that may be led now: preferably one that waits for it,
// else the log thread (which looks for work before it sleeps).
void LogImpl::PassLeadership(WakeList& wakes) {
  Group* next = NextToLead();
  const bool sync_wanted = next == nullptr && SyncWanted();
  if (next == nullptr && !sync_wanted) return;
  if (candidate_) {
    wakes.Add(lead_word_);
  } else if (next != nullptr && next->has_sleepers) {
    next->has_sleepers = false;
    wakes.Add(next->done_word);
  } else if (sync_wanted && sync_sleepers_) {
    sync_sleepers_ = false;
    wakes.Add(sync_word_);
  } else if (log_thread_sleeps_) {
    wakes.Add(log_word_);
  }
}

// ---------------------------------------------------------------- what a leader does

// A leader must always finish, else the log stalls. Treat an allocation failure here, also in a
// file system that is reporting an error, as a failed write.
void LogImpl::Lead(Group& group) {
  const uint64_t start_ns = scheduler_.MonotonicNs();
  const bool opens_epoch = group.opens_segment && group.segment->opens_epoch;
  CAIRN_CHECK(!group.led);
  CAIRN_CHECK(group.record_count > 0);
  CAIRN_CHECK(group.first_sequence > written_.load());
  CAIRN_CHECK(!exclusive_);
  group.led = true;
  ++in_flight_;
  CAIRN_CHECK(in_flight_ <= kMaxGroupsInFlight);
  // The predecessor's footer lies where the next groups of this segment put theirs.
  if (group.opens_segment) exclusive_ = true;
  if (&group == forming_) AwaitMembers(group);
  if (&group == forming_) CloseForming();
  CAIRN_CHECK(group.state == GroupState::kClosed);
  Status status;
  {
    MutexUnlock unlocked(&mutex_);
    if (CAIRN_KEPT(kFillsBeforeWrite)) group.AwaitFills(scheduler_);
    status = LockIsOurs(start_ns);
    if (status.ok() && group.opens_segment && !opens_epoch) {
      status = CatchBadAlloc([&] { return FinishPredecessor(group); });
    }
  }

  if (group.opens_segment && !opens_epoch) {
    WakeList others;
    exclusive_ = false;
    PassLeadership(others);
    others.Go(scheduler_);
  }
  bool at_once = false;
  if (status.ok() && cause_.ok()) {
    issued_ = std::max(issued_, group.last_sequence());
    group.durable = opens_epoch || durable_wanted_ >= group.first_sequence;
    // One durable write does the work of a write and a sync if nothing else needs the sync.
    at_once = group.durable && options_.sync_method == SyncMethod::kDurableWrite &&
              in_flight_ == 1 && durable_.load() == written_.load() &&
              group.early_begin == group.early_end && group.bytes + kBlock <= kPieceBytes;
    const uint64_t synced_upto = durable_.load();
    MutexUnlock unlocked(&mutex_);
    SealGroup(group, synced_upto);
    status = WithCushion([&] {
      // As a whole the next time: pieces may be missing anywhere in it.
      const Status written = group.Write(*world_.files, at_once);
      if (!written.ok()) group.early_begin = group.early_end = 0;
      return written;
    });
  }

  WakeList wakes;
  if (status.ok() && cause_.ok()) {
    group.written = true;
    CountWritten(wakes);
    wakes.Go(scheduler_);
    if (group.durable && !at_once &&
        (!CAIRN_KEPT(kWritesBeforeSync) || AwaitEarlierWrites(group))) {
      MutexUnlock unlocked(&mutex_);
      if (CAIRN_KEPT(kSyncGroup))
        status = CatchBadAlloc([&] { return group.segment->file->Sync(); });
    }
  }

  CAIRN_CHECK(in_flight_ > 0);
  --in_flight_;
  if (closing_) wakes.Add(write_word_);
  if (opens_epoch) exclusive_ = false;
  uint64_t took_ns = 0;
  if (!status.ok()) {
    PoisonLocked(status, wakes);
  } else if (cause_.ok()) {
    CAIRN_CHECK(group.written);
    group.state = GroupState::kDone;
    if (group.durable) {
      ++counters_.syncs;
      took_ns = scheduler_.MonotonicNs() - start_ns;
      group_ns_ = group_ns_ == 0 ? took_ns : (7 * group_ns_ + took_ns) / 8;
    }
    Retire(wakes);
  }
  PassLeadership(wakes);
  Announce(wakes);
  if (took_ns > kStallNs) ++counters_.slow_groups;
  if (took_ns > kStallNs && options_.observer != nullptr) {
    MutexUnlock unlocked(&mutex_);
    static_cast<void>(CatchBadAlloc([&] {  // If there is no memory for the text it is only counted.
      const std::string ms = std::to_string(took_ns / 1'000'000);
      options_.observer->OnEvent("log: a group took " + ms + " ms");
    }));
  }
}

// Makes records durable that were written without a sync.
void LogImpl::LeadSync() {
  const std::shared_ptr<OpenSegmentState> segment = tail_segment_;
  const uint64_t through = written_.load();
  CAIRN_CHECK(segment != nullptr);
  CAIRN_CHECK(in_flight_ == 0);
  CAIRN_CHECK(through > durable_.load());
  ++in_flight_;
  Status status;
  if (CAIRN_KEPT(kSyncLater)) {
    MutexUnlock unlocked(&mutex_);
    status = CatchBadAlloc([&] { return segment->file->Sync(); });
  }
  --in_flight_;
  WakeList wakes;
  if (closing_) wakes.Add(write_word_);
  if (!status.ok()) {
    PoisonLocked(status, wakes);
  } else {
    ++counters_.syncs;
    SetDurable(through, wakes);
  }
  PassLeadership(wakes);
  Announce(wakes);
}

// On a slow device the callers of the last group are back within a small part of its time, and one
// that comes too late pays for a whole group. So wait a little for the number of callers that it
// had.
void LogImpl::AwaitMembers(Group& group) {
  if (group_ns_ < kMemberWaitMinGroupNs || durable_wanted_ < group.first_sequence) return;
  const auto enough = [&] {
    mutex_.AssertHeld();
    return &group != forming_ || !cause_.ok() || closing_ ||
           group.record_count >= members_wanted_ || group.bytes >= kMemberWaitMaxBytes;
  };
  if (enough()) return;
  const uint64_t deadline_ns = scheduler_.MonotonicNs() + group_ns_ / kMemberWaitShare;
  awaits_members_ = true;
  while (!enough() && Sleep(members_word_, deadline_ns)) {
  }
  awaits_members_ = false;
}

// Writes the footer of the segment before, and syncs all of it. Until here its groups may have been
// written without a sync; from here on the header of the next segment proves that they were synced.
Status LogImpl::FinishPredecessor(const Group& group) {
  std::shared_ptr<OpenSegmentState> segment;
  uint64_t through = 0;
  {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) return Status::Ok();  // The caller checks.
    CAIRN_CHECK(tail_segment_ != nullptr);
    CAIRN_CHECK(tail_segment_->number + 1 == group.segment->number);
    CAIRN_CHECK(written_.load() + 1 == group.first_sequence);
    segment = tail_segment_;
    through = written_.load();
  }
  if (segment->footer) {
    CAIRN_RETURN_IF_ERROR(WithCushion([&] {
      return footer_.Write(*segment, through, epoch_, options_.segment_bytes, options_.store);
    }));
  }
  if (CAIRN_KEPT(kSyncPredecessor)) CAIRN_RETURN_IF_ERROR(segment->file->Sync());
  WakeList wakes;
  {
    MutexLock lock(&mutex_);
    ++counters_.syncs;
    SetDurable(through, wakes);
  }
  wakes.Go(scheduler_);
  return Status::Ok();
}

// Writes everything that only the leader knows: the group header, the zeros behind the group, the
// segment header if it is the first group, its part of the footer.
void LogImpl::SealGroup(Group& group, uint64_t synced_upto) {
  const OpenSegmentState& segment = *group.segment;
  CAIRN_CHECK(synced_upto < group.first_sequence);
  uint64_t records_hash = 0;
  uint32_t records = 0;
  const std::byte* const end = group.header() + group.bytes;
  for (const std::byte* at = group.header() + sizeof(GroupHeader); at < end;) {
    const auto frame = LoadAs<RecordFrame>(at);
    CAIRN_CHECK(frame.magic == kRecordMagic);
    CAIRN_CHECK(frame.header_hash != 0);  // It was published.
    CAIRN_CHECK(frame.sequence == group.first_sequence + records);
    ++records;
    records_hash = FoldRecordHash(records_hash, frame.header_hash);
    at += frame.record_bytes;
    CAIRN_CHECK(at <= end);
  }
  CAIRN_CHECK(records == group.record_count);
  std::memset(group.header() + group.bytes, 0, AlignUp(group.end(), kBlock) - group.end());

  GroupHeader header{};
  header.record_count = group.record_count;
  header.epoch = epoch_;
  header.segment = segment.number;
  header.first_sequence = group.first_sequence;
  header.length = group.bytes;
  header.synced_upto = synced_upto;
  header.records_hash = records_hash;
  group.header_hash = EncodeGroupHeader(header, group.offset, options_.store, group.header());
  if (group.footer_bytes > 0) footer_.Add(group);
  if (!group.opens_segment) return;

  CAIRN_CHECK(group.offset == kFirstGroupOffset);
  CAIRN_CHECK(group.chunk->offset == 0);
  CAIRN_CHECK(group.first_sequence == segment.first_sequence);
  SegmentHeader opening{};
  opening.store = options_.store;
  opening.segment = segment.number;
  opening.epoch = epoch_;
  opening.first_sequence = segment.first_sequence;
  opening.segment_bytes = options_.segment_bytes;
  opening.created_wall_ns = scheduler_.WallNs();
  opening.synced_upto = synced_upto;
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(written_.load() == opening.first_sequence - 1);
    opening.predecessor_last_sequence = opening.first_sequence - 1;
    opening.predecessor_last_hash = last_hash_;
    opening.predecessor_end_offset = tail_end_;
    if (!segment.opens_epoch) {
      opening.predecessor_segment = tail_segment_->number;
      opening.predecessor_epoch = epoch_;
    } else if (!recovered_.segments.empty()) {
      CAIRN_CHECK(recovered_.segments.back().number + 1 == segment.number);
      opening.predecessor_segment = recovered_.segments.back().number;
      opening.predecessor_epoch = recovered_.segments.back().epoch;
    }
  }
  opening.first_group_hash = group.header_hash;
  EncodeSegmentHeader(opening, group.chunk->At(0));
}

bool LogImpl::AwaitEarlierWrites(const Group& group) {
  while (cause_.ok() && writes_through_ < group.first_sequence - 1) {
    Sleep(write_word_, io::kNoDeadline);
  }
  return cause_.ok();
}

}  // namespace cairn::wal
