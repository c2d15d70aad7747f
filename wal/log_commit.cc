// SPDX-License-Identifier: Apache-2.0
//
// Group commit: who leads, what a leader does, and how everybody else learns of it.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "wal/log_impl.h"

namespace cairn::wal {

// ---------------------------------------------------------------- who leads

// The first group that nobody leads, if somebody wants it and it may go now.
LogImpl::Group* LogImpl::NextToLead() {
  if (!cause_.ok()) return nullptr;
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [](const Group* group) { return !group->led; });
  if (found == queue_.end()) return nullptr;
  Group* next = *found;
  if (next->first_sequence > write_wanted_) return nullptr;
  if (in_flight_ == 0) return next;
  // While the device is busy a group that can take more members had better do so. The first of a
  // segment must find everything before it written, and the first of an epoch must be synced
  // before anything follows it: only then does its header prove that the epoch was used.
  const bool may_join = in_flight_ < kMaxGroupsInFlight && !exclusive_ &&
                        next->state == GroupState::kClosed && !next->opens_segment;
  return may_join ? next : nullptr;
}

// Somebody wants durable what is only written, and no group that would sync it is coming.
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

// Makes sure that somebody looks at work that may be led now: best a thread that waits for it,
// else the log thread (which looks by itself before it sleeps).
void LogImpl::HandOn(Wakes& wakes) {
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

// Whoever leads must come to its end, or nobody ever leads again: where an allocation fails, in a
// file system that tells of an error as well, that is a write that failed, like any other.
void LogImpl::Lead(Group& group) {
  const uint64_t start_ns = scheduler_.MonotonicNs();
  const bool opens_epoch = group.opens_segment && group.segment->opens_epoch;
  group.led = true;
  ++in_flight_;
  // The footer that the predecessor gets lies where the next groups of this segment put theirs.
  if (group.opens_segment) exclusive_ = true;
  if (&group == forming_) Gather(group);
  if (&group == forming_) CloseForming();
  Status status;
  {
    MutexUnlock unlocked(&mutex_);
    if (CAIRN_KEPT(kFillsBeforeWrite)) AwaitFills(group);
    status = LockIsOurs(start_ns);
    if (status.ok() && group.opens_segment && !opens_epoch) {
      status = Guarded([&] { return FinishPredecessor(group); });
    }
  }

  if (group.opens_segment && !opens_epoch) {
    Wakes others;
    exclusive_ = false;
    HandOn(others);
    others.Go(scheduler_);
  }
  bool at_once = false;
  if (status.ok() && cause_.ok()) {
    issued_ = std::max(issued_, group.last_sequence());
    group.durable = opens_epoch || durable_wanted_ >= group.first_sequence;
    // One durable write does the work of a write and a sync where nothing else needs the sync.
    at_once = group.durable && options_.sync_method == SyncMethod::kDurableWrite &&
              in_flight_ == 1 && durable_.load() == written_.load() &&
              group.early_begin == group.early_end && group.bytes + kBlock <= kPieceBytes;
    const uint64_t synced_upto = durable_.load();
    MutexUnlock unlocked(&mutex_);
    SealGroup(group, synced_upto);
    status = Guarded([&] { return WriteGroup(group, at_once); });
  }

  Wakes wakes;
  if (status.ok() && cause_.ok()) {
    group.written = true;
    CountWritten(wakes);
    wakes.Go(scheduler_);
    if (group.durable && !at_once &&
        (!CAIRN_KEPT(kWritesBeforeSync) || AwaitEarlierWrites(group))) {
      MutexUnlock unlocked(&mutex_);
      if (CAIRN_KEPT(kSyncGroup)) status = Guarded([&] { return group.segment->file->Sync(); });
    }
  }

  --in_flight_;
  if (closing_) wakes.Add(write_word_);
  if (opens_epoch) exclusive_ = false;
  uint64_t took_ns = 0;
  if (!status.ok()) {
    PoisonLocked(status, wakes);
  } else if (cause_.ok()) {
    group.state = GroupState::kDone;
    if (group.durable) {
      ++counters_.syncs;
      took_ns = scheduler_.MonotonicNs() - start_ns;
      group_ns_ = group_ns_ == 0 ? took_ns : (7 * group_ns_ + took_ns) / 8;
    }
    Retire(wakes);
  }
  HandOn(wakes);
  Announce(wakes);
  if (took_ns > kStallNs) ++counters_.slow_groups;
  if (took_ns > kStallNs && options_.observer != nullptr) {
    MutexUnlock unlocked(&mutex_);
    static_cast<void>(Guarded([&] {  // Without memory for the words it is counted only.
      const std::string ms = std::to_string(took_ns / 1'000'000);
      options_.observer->OnEvent("log: a group took " + ms + " ms");
    }));
  }
}

// What was written without a sync becomes durable.
void LogImpl::LeadSync() {
  const std::shared_ptr<OpenSegmentState> segment = tail_segment_;
  const uint64_t through = written_.load();
  CAIRN_CHECK(segment != nullptr);
  ++in_flight_;
  Status status;
  if (CAIRN_KEPT(kSyncLater)) {
    MutexUnlock unlocked(&mutex_);
    status = Guarded([&] { return segment->file->Sync(); });
  }
  --in_flight_;
  Wakes wakes;
  if (closing_) wakes.Add(write_word_);
  if (!status.ok()) {
    PoisonLocked(status, wakes);
  } else {
    ++counters_.syncs;
    SetDurable(through, wakes);
  }
  HandOn(wakes);
  Announce(wakes);
}

// On a slow device the callers of the group before are back within a small part of its time, and
// one that comes too late pays for a whole group. So wait a little for as many as there were.
void LogImpl::Gather(Group& group) {
  if (group_ns_ < kGatherMinGroupNs || durable_wanted_ < group.first_sequence) return;
  const auto enough = [&] {
    mutex_.AssertHeld();
    return &group != forming_ || !cause_.ok() || closing_ || group.record_count >= gather_want_ ||
           group.bytes >= kGatherMaxBytes;
  };
  if (enough()) return;
  const uint64_t deadline_ns = scheduler_.MonotonicNs() + group_ns_ / kGatherShare;
  gathering_ = true;
  while (!enough() && Sleep(gather_word_, deadline_ns)) {
  }
  gathering_ = false;
}

void LogImpl::AwaitFills(Group& group) {
  uint32_t open = group.fills.load(std::memory_order_acquire);
  if (open == 0) return;
  open = group.fills.fetch_or(kLeaderWaits, std::memory_order_acq_rel) | kLeaderWaits;
  while (open != kLeaderWaits) {
    scheduler_.Wait(group.fills, open, io::kNoDeadline);
    open = group.fills.load(std::memory_order_acquire);
  }
  group.fills.store(0, std::memory_order_relaxed);
}

// The footer of the segment before, and the sync that makes all of it durable. Until here its
// groups may have been written without one; from here on the header of the next segment proves
// that they were synced.
Status LogImpl::FinishPredecessor(const Group& group) {
  std::shared_ptr<OpenSegmentState> segment;
  uint64_t through = 0;
  {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) return Status::Ok();  // The caller looks.
    CAIRN_CHECK(tail_segment_ != nullptr && written_.load() + 1 == group.first_sequence);
    segment = tail_segment_;
    through = written_.load();
  }
  if (segment->footer) CAIRN_RETURN_IF_ERROR(WriteFooter(*segment, through));
  if (CAIRN_KEPT(kSyncPredecessor)) CAIRN_RETURN_IF_ERROR(segment->file->Sync());
  Wakes wakes;
  {
    MutexLock lock(&mutex_);
    ++counters_.syncs;
    SetDurable(through, wakes);
  }
  wakes.Go(scheduler_);
  return Status::Ok();
}

Status LogImpl::WriteFooter(const OpenSegmentState& segment, uint64_t last_sequence) {
  const uint64_t total = AlignUp(segment.footer_bytes + sizeof(FooterTrailer), kBlock);
  const uint64_t offset = options_.segment_bytes - total;
  CAIRN_CHECK(total <= footer_buffer_.size() && offset >= segment.end);
  std::byte* entries = footer_buffer_.data();
  std::memset(entries + segment.footer_bytes, 0, total - segment.footer_bytes);
  FooterTrailer trailer{};
  trailer.magic = kFooterMagic;
  trailer.group_count = segment.footer_groups;
  trailer.segment = segment.number;
  trailer.epoch = epoch_;
  trailer.first_sequence = segment.first_sequence;
  trailer.last_sequence = last_sequence;
  trailer.footer_offset = static_cast<uint32_t>(offset);
  trailer.entries_bytes = segment.footer_bytes;
  trailer.entries_hash = Hash({entries, segment.footer_bytes});
  EncodeFooterTrailer(trailer, options_.segment_bytes, options_.store,
                      entries + total - sizeof(trailer));
  return segment.file->Write(offset, {entries, total}, /*durable=*/false);
}

// Everything that only the leader knows: the group header, the zeros behind the group, the segment
// header if it is the first, its part of the footer.
void LogImpl::SealGroup(Group& group, uint64_t synced_upto) {
  const OpenSegmentState& segment = *group.segment;
  uint64_t records_hash = 0;
  const std::byte* const end = group.header() + group.bytes;
  for (const std::byte* at = group.header() + sizeof(GroupHeader); at < end;) {
    const auto frame = LoadAs<RecordFrame>(at);
    records_hash = FoldRecordHash(records_hash, frame.header_hash);
    at += frame.record_bytes;
    CAIRN_CHECK(at <= end);
  }
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
  if (group.footer_bytes > 0) CopyToFooter(group);
  if (!group.opens_segment) return;

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
    opening.predecessor_last_sequence = opening.first_sequence - 1;
    opening.predecessor_last_hash = last_hash_;
    opening.predecessor_end_offset = tail_end_;
    if (!segment.opens_epoch) {
      opening.predecessor_segment = tail_segment_->number;
      opening.predecessor_epoch = epoch_;
    } else if (!recovered_.segments.empty()) {
      opening.predecessor_segment = recovered_.segments.back().number;
      opening.predecessor_epoch = recovered_.segments.back().epoch;
    }
  }
  opening.first_group_hash = group.header_hash;
  EncodeSegmentHeader(opening, group.chunk->At(0));
}

void LogImpl::CopyToFooter(const Group& group) {
  std::byte* to = footer_buffer_.data() + group.footer_offset;
  const auto put = [&to](const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  const FooterGroup entry{group.offset, LoadAs<GroupHeader>(group.header())};
  put(&entry, sizeof(entry));
  uint32_t offset = group.offset + static_cast<uint32_t>(sizeof(GroupHeader));
  while (offset < group.end()) {
    const std::byte* record = group.chunk->At(offset);
    const auto frame = LoadAs<RecordFrame>(record);
    const FooterRecord header{
        offset, static_cast<uint32_t>(RecordHeaderBytes(frame.fields_bytes, frame.strip_count))};
    put(&header, sizeof(header));
    put(record, header.header_bytes);
    offset += frame.record_bytes;
  }
  CAIRN_CHECK(to == footer_buffer_.data() + group.footer_offset + group.footer_bytes);
}

Status LogImpl::WriteGroup(Group& group, bool durable) {
  const uint32_t begin = group.opens_segment ? 0 : group.offset;
  const uint32_t end = static_cast<uint32_t>(AlignUp(group.end(), kBlock));
  const bool early = group.early_begin != group.early_end;
  if (!early && (end - begin <= kPieceBytes || !HasQueue(group))) {
    return group.segment->file->Write(begin, {group.chunk->At(begin), end - begin}, durable);
  }
  CAIRN_CHECK(!durable);
  Status status = Guarded([&]() -> Status {
    if (!early) return WritePieces(group, begin, end);
    CAIRN_RETURN_IF_ERROR(WritePieces(group, begin, group.early_begin));
    return WritePieces(group, group.early_end, end);
  });
  // Whatever happened: nothing may be in flight when the group's memory is used again.
  while (group.queue->in_flight() > 0) {
    const Status piece = ReapPiece(group);
    if (status.ok()) status = piece;
  }
  return status;
}

Status LogImpl::WritePieces(Group& group, uint32_t begin, uint32_t end) {
  while (begin < end) {
    if (group.free_requests.empty()) {
      CAIRN_RETURN_IF_ERROR(ReapPiece(group));
      continue;
    }
    const uint32_t piece_end = std::min(end, begin + static_cast<uint32_t>(kPieceBytes));
    SubmitPiece(group, begin, piece_end);
    begin = piece_end;
  }
  return Status::Ok();
}

Status LogImpl::ReapPiece(Group& group) {
  io::Request* request = group.queue->Reap();
  group.free_requests.push_back(request);
  return std::move(request->status);
}

bool LogImpl::AwaitEarlierWrites(const Group& group) {
  while (cause_.ok() && writes_through_ < group.first_sequence - 1) {
    Sleep(write_word_, io::kNoDeadline);
  }
  return cause_.ok();
}

// ---------------------------------------------------------------- how everybody learns

void LogImpl::CountWritten(Wakes& wakes) {
  for (const Group* group : queue_) {
    if (!group->written) break;
    writes_through_ = std::max(writes_through_, group->last_sequence());
  }
  if (in_flight_ > 1) wakes.Add(write_word_);
}

void LogImpl::SetDurable(uint64_t sequence, Wakes& wakes) {
  CAIRN_CHECK(sequence <= written_.load());
  if (sequence <= durable_.load()) return;
  durable_.store(sequence);
  if (sync_sleepers_) {
    sync_sleepers_ = false;
    wakes.Add(sync_word_);
  }
  if (candidate_ && candidate_sequence_ <= sequence) wakes.Add(lead_word_);
}

// Takes what is done off the front of the queue: acknowledgements come in order.
void LogImpl::Retire(Wakes& wakes) {
  uint32_t records = 0;
  while (!queue_.empty() && queue_.front()->state == GroupState::kDone) {
    Group& group = *queue_.front();
    queue_.erase(queue_.begin());
    CAIRN_CHECK(group.first_sequence == written_.load() + 1);
    records += group.record_count;
    written_.store(group.last_sequence());
    ++counters_.groups;
    const uint64_t padded_end = AlignUp(group.end(), kBlock);
    counters_.bytes_written += padded_end - (group.opens_segment ? 0 : group.offset);
    any_written_ = true;
    tail_segment_ = group.segment;
    tail_end_ = static_cast<uint32_t>(padded_end);
    last_hash_ = group.header_hash;
    for (auto live = live_.rbegin(); live != live_.rend(); ++live) {
      if (live->number != group.segment->number) continue;
      live->end_offset = tail_end_;
      live->last_sequence = group.last_sequence();
      break;
    }
    if (group.durable) SetDurable(group.last_sequence(), wakes);
    if (group.has_sleepers) {
      group.has_sleepers = false;
      wakes.Add(group.done_word);
    }
    group.chunk.reset();
    group.segment.reset();
    group.state = GroupState::kFree;
  }
  if (records == 0) return;
  gather_want_ = records + (forming_ != nullptr ? forming_->record_count : 0);
  if (candidate_ && candidate_sequence_ <= written_.load()) wakes.Add(lead_word_);
  if (room_sleepers_) {
    room_sleepers_ = false;
    wakes.Add(room_word_);
  }
}

void LogImpl::PoisonLocked(const Status& cause, Wakes& wakes) {
  if (!cause_.ok()) return;
  cause_ = cause;
  announce_poison_ = true;
  for (Group* group : queue_) wakes.Add(group->done_word);
  for (std::atomic<uint32_t>* word :
       {&lead_word_, &sync_word_, &room_word_, &write_word_, &log_word_, &gather_word_}) {
    wakes.Add(*word);
  }
}

void LogImpl::Poison(const Status& cause) {
  Wakes wakes;
  MutexLock lock(&mutex_);
  PoisonLocked(cause, wakes);
  Announce(wakes);
}

Status LogImpl::CheckLock() {
  if (options_.lock == nullptr || !CAIRN_KEPT(kLockIsOurs)) return Status::Ok();
  const Status status = options_.lock->Check();
  if (!status.ok()) Poison(status);
  return status;
}

// For a leader, which poisons by itself: without asking when that was done just now.
Status LogImpl::LockIsOurs(uint64_t now_ns) {
  if (options_.lock == nullptr || !CAIRN_KEPT(kLockIsOurs)) return Status::Ok();
  const uint64_t checked_ns = lock_checked_ns_.load(std::memory_order_relaxed);
  if (checked_ns != 0 && now_ns - checked_ns < kLockCheckNs) return Status::Ok();
  lock_checked_ns_.store(now_ns, std::memory_order_relaxed);
  return options_.lock->Check();
}

// Wakes who must wake and tells the observer, both without the lock. Only one thread talks to the
// observer; what happens meanwhile it tells in its next round.
void LogImpl::Announce(Wakes& wakes) {
  {
    MutexUnlock unlocked(&mutex_);
    wakes.Go(scheduler_);
  }
  if (options_.observer == nullptr || announcing_) return;
  announcing_ = true;
  for (;;) {
    const uint64_t written = written_.load();
    const uint64_t durable = durable_.load();
    if (written != announced_written_ || durable != announced_durable_) {
      {
        MutexUnlock unlocked(&mutex_);
        options_.observer->OnProgress(written, durable);
      }
      announced_written_ = written;
      announced_durable_ = durable;
    } else if (announce_poison_) {
      announce_poison_ = false;
      const Status cause = cause_;
      MutexUnlock unlocked(&mutex_);
      options_.observer->OnPoison(cause, written);
    } else {
      break;
    }
  }
  announcing_ = false;
}

namespace {

// Made before they are needed: without memory for words it is still told which of the two it is.
const Status kWasIssued(StatusCode::kUnknownOutcome, "the log failed");
const Status kWasNotIssued(StatusCode::kPoisoned, "the log failed");

}  // namespace

Status LogImpl::OutcomeAfterPoison(uint64_t sequence) const {
  const Status& outcome = sequence <= issued_ ? kWasIssued : kWasNotIssued;
  const Status in_words = Guarded([&] {
    mutex_.AssertHeld();
    return Status(outcome.code(),
                  "record " + std::to_string(sequence) + ": " + std::string(cause_.message()));
  });
  return in_words.code() == outcome.code() ? in_words : outcome;
}

// Releases the lock while it sleeps. False when the deadline passed.
bool LogImpl::Sleep(std::atomic<uint32_t>& word, uint64_t deadline_ns) {
  const uint32_t seen = word.load();
  MutexUnlock unlocked(&mutex_);
  return scheduler_.Wait(word, seen, deadline_ns);
}

LogImpl::Group* LogImpl::Unretired(uint64_t sequence) {
  for (Group* group : queue_) {
    if (sequence <= group->last_sequence()) return group;
  }
  return nullptr;
}

Status LogImpl::Wait(uint64_t sequence, bool durable, uint64_t deadline_ns) {
  MutexLock lock(&mutex_);
  CAIRN_CHECK(sequence <= last_reserved_.load());
  write_wanted_ = std::max(write_wanted_, sequence);
  if (durable) durable_wanted_ = std::max(durable_wanted_, sequence);
  bool in_time = true;
  Status status;
  for (;;) {
    if ((durable ? durable_ : written_).load() >= sequence) break;
    if (!cause_.ok()) {
      status = OutcomeAfterPoison(sequence);
      break;
    }
    if (!in_time) {
      status = Status(StatusCode::kDeadlineExceeded,
                      "record " + std::to_string(sequence) + " is not acknowledged yet");
      break;
    }
    if (LeadSomething(/*by_waiter=*/true)) continue;
    if (!candidate_) {
      candidate_ = true;
      candidate_sequence_ = sequence;
      in_time = Sleep(lead_word_, deadline_ns);
      candidate_ = false;
    } else if (Group* group = Unretired(sequence); group != nullptr) {
      group->has_sleepers = true;
      in_time = Sleep(group->done_word, deadline_ns);
    } else {
      sync_sleepers_ = true;
      in_time = Sleep(sync_word_, deadline_ns);
    }
  }
  // This thread may have been the one that was asked to lead.
  Wakes wakes;
  HandOn(wakes);
  lock.Unlock();
  wakes.Go(scheduler_);
  return status;
}

void LogImpl::Request(uint64_t sequence, bool durable) {
  Wakes wakes;
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(sequence <= last_reserved_.load());
    write_wanted_ = std::max(write_wanted_, sequence);
    if (durable) durable_wanted_ = std::max(durable_wanted_, sequence);
    HandOn(wakes);
  }
  wakes.Go(scheduler_);
}

// The caller may hold slots that are not published: it must not lead a group that waits for them.
Status LogImpl::WaitForRoom(uint64_t deadline_ns) {
  MutexLock lock(&mutex_);
  if (!cause_.ok()) return Status(StatusCode::kPoisoned, std::string(cause_.message()));
  const Group* next = NextToLead();
  if (next != nullptr && next->fills.load(std::memory_order_acquire) == 0) {
    LeadSomething(/*by_waiter=*/true);
    return Status::Ok();
  }
  // Readers that unpin memory tell nobody, so a look from time to time is needed anyway.
  constexpr uint64_t kLookNs = 5'000'000;
  const uint64_t look_ns = scheduler_.MonotonicNs() + kLookNs;
  room_sleepers_ = true;
  if (Sleep(room_word_, std::min(deadline_ns, look_ns)) || look_ns < deadline_ns) {
    return Status::Ok();
  }
  return Status(StatusCode::kDeadlineExceeded, "the log has no room yet");
}

// ---------------------------------------------------------------- the log thread

// When the forming group, which nobody asked for, must go by itself; kNoDeadline without one.
uint64_t LogImpl::NextTimer(uint64_t now) {
  // The oldest group that nobody asked for; one that holds a large record is closed from the start.
  for (const Group* group : queue_) {
    if (group->led || group->record_count == 0 || group->last_sequence() <= write_wanted_) continue;
    const uint64_t due = group->opened_ns + options_.memory_flush_ns;
    if (due > now) return due;
    write_wanted_ = group->last_sequence();
    return now;
  }
  return io::kNoDeadline;
}

void LogImpl::RunLogThread() {
  // Appends do not wake this thread for the timer of their group. Instead it looks once a period as
  // long as there were appends lately, and lets itself be woken by the first one after a pause.
  constexpr int kQuietPeriods = 10;
  int quiet = 0;
  uint64_t seen_sequence = 0;
  MutexLock lock(&mutex_);
  while (!stop_) {
    if (!candidate_ && LeadSomething(/*by_waiter=*/false)) continue;
    const uint64_t now = scheduler_.MonotonicNs();
    uint64_t deadline_ns = NextTimer(now);
    if (deadline_ns == now) continue;
    if (deadline_ns == io::kNoDeadline) {
      const uint64_t last = last_reserved_.load();
      quiet = last == seen_sequence ? quiet + 1 : 0;
      seen_sequence = last;
      if (quiet < kQuietPeriods) deadline_ns = now + options_.memory_flush_ns;
    }
    log_thread_sleeps_ = true;
    log_thread_idle_ = deadline_ns == io::kNoDeadline;
    Sleep(log_word_, deadline_ns);
    log_thread_sleeps_ = log_thread_idle_ = false;
  }
}

}  // namespace cairn::wal
