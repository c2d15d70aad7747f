// SPDX-License-Identifier: Apache-2.0
//
// Group commit: how other threads learn of what a leader (log_commit.cc) has done; and the log's
// thread.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "wal/log_impl.h"

namespace cairn::wal {

// ---------------------------------------------------------------- reporting progress

void LogImpl::CountWritten(WakeList& wakes) {
  for (const Group* group : queue_) {
    if (!group->written) break;
    writes_through_ = std::max(writes_through_, group->last_sequence());
  }
  CAIRN_CHECK(writes_through_ <= issued_);
  if (in_flight_ > 1) wakes.Add(write_word_);
}

void LogImpl::SetDurable(uint64_t sequence, WakeList& wakes) {
  CAIRN_CHECK(sequence <= written_.load());
  if (sequence <= durable_.load()) return;
  durable_.store(sequence);
  if (sync_sleepers_) {
    sync_sleepers_ = false;
    wakes.Add(sync_word_);
  }
  if (candidate_ && candidate_sequence_ <= sequence) wakes.Add(lead_word_);
}

// Takes finished groups off the front of the queue: acknowledgements come in order.
void LogImpl::Retire(WakeList& wakes) {
  uint32_t records = 0;
  while (!queue_.empty() && queue_.front()->state == GroupState::kDone) {
    Group& group = *queue_.front();
    queue_.erase(queue_.begin());
    CAIRN_CHECK(group.led);
    CAIRN_CHECK(&group != forming_);
    CAIRN_CHECK(group.fills.load(std::memory_order_relaxed) == 0);
    CAIRN_CHECK(group.first_sequence == written_.load() + 1);
    CAIRN_CHECK(group.last_sequence() <= writes_through_);
    // A segment has no gaps.
    const bool begins = tail_segment_ != group.segment;
    CAIRN_CHECK(begins == group.opens_segment);
    CAIRN_CHECK(begins || group.offset == tail_end_);
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
  members_wanted_ = records + (forming_ != nullptr ? forming_->record_count : 0);
  if (candidate_ && candidate_sequence_ <= written_.load()) wakes.Add(lead_word_);
  if (room_sleepers_) {
    room_sleepers_ = false;
    wakes.Add(room_word_);
  }
}

void LogImpl::PoisonLocked(const Status& cause, WakeList& wakes) {
  CAIRN_CHECK(!cause.ok());
  if (!cause_.ok()) return;
  cause_ = cause;
  announce_poison_ = true;
  for (Group* group : queue_) wakes.Add(group->done_word);
  for (std::atomic<uint32_t>* word :
       {&lead_word_, &sync_word_, &room_word_, &write_word_, &log_word_, &members_word_}) {
    wakes.Add(*word);
  }
}

void LogImpl::Poison(const Status& cause) {
  WakeList wakes;
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

// For a leader, which poisons the log itself. Does not ask if that was done just now.
Status LogImpl::LockIsOurs(uint64_t now_ns) {
  if (options_.lock == nullptr || !CAIRN_KEPT(kLockIsOurs)) return Status::Ok();
  const uint64_t checked_ns = lock_checked_ns_.load(std::memory_order_relaxed);
  if (checked_ns != 0 && now_ns - checked_ns < kLockCheckNs) return Status::Ok();
  lock_checked_ns_.store(now_ns, std::memory_order_relaxed);
  return options_.lock->Check();
}

// Wakes the collected threads and calls the observer, both without the lock. Only one thread calls
// the observer; progress made meanwhile is reported in its next round.
void LogImpl::Announce(WakeList& wakes) {
  {
    MutexUnlock unlocked(&mutex_);
    wakes.Go(scheduler_);
  }
  if (options_.observer == nullptr || announcing_) return;
  announcing_ = true;
  for (;;) {
    const uint64_t written = written_.load();
    const uint64_t durable = durable_.load();
    CAIRN_CHECK(durable <= written);
    CAIRN_CHECK(written >= announced_written_);
    CAIRN_CHECK(durable >= announced_durable_);
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

// Made in advance: even without memory for text the two cases stay distinct.
const Status kWasIssued(StatusCode::kUnknownOutcome, "the log failed");
const Status kWasNotIssued(StatusCode::kPoisoned, "the log failed");

}  // namespace

Status LogImpl::OutcomeAfterPoison(uint64_t sequence) const {
  CAIRN_CHECK(sequence > durable_.load());
  const Status& outcome = sequence <= issued_ ? kWasIssued : kWasNotIssued;
  const Status in_words = CatchBadAlloc([&] {
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
      CAIRN_CHECK(candidate_);  // There is one.
      candidate_ = false;
    } else if (Group* group = Unretired(sequence); group != nullptr) {
      group->has_sleepers = true;
      in_time = Sleep(group->done_word, deadline_ns);
    } else {
      sync_sleepers_ = true;
      in_time = Sleep(sync_word_, deadline_ns);
    }
  }
  // This thread may have been the candidate for leading.
  WakeList wakes;
  PassLeadership(wakes);
  lock.Unlock();
  wakes.Go(scheduler_);
  return status;
}

void LogImpl::Request(uint64_t sequence, bool durable) {
  WakeList wakes;
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(sequence <= last_reserved_.load());
    write_wanted_ = std::max(write_wanted_, sequence);
    if (durable) durable_wanted_ = std::max(durable_wanted_, sequence);
    PassLeadership(wakes);
  }
  wakes.Go(scheduler_);
}

// The caller may hold unpublished slots: it must not lead a group that waits for them.
Status LogImpl::WaitForRoom(uint64_t deadline_ns) {
  MutexLock lock(&mutex_);
  if (!cause_.ok()) return Status(StatusCode::kPoisoned, std::string(cause_.message()));
  const Group* next = NextToLead();
  if (next != nullptr && next->fills.load(std::memory_order_acquire) == 0) {
    LeadSomething(/*by_waiter=*/true);
    return Status::Ok();
  }
  // Readers that unpin memory send no signal, so it polls as well.
  constexpr uint64_t kLookNs = 5'000'000;
  const uint64_t look_ns = scheduler_.MonotonicNs() + kLookNs;
  room_sleepers_ = true;
  if (Sleep(room_word_, std::min(deadline_ns, look_ns)) || look_ns < deadline_ns) {
    return Status::Ok();
  }
  return Status(StatusCode::kDeadlineExceeded, "the log has no room yet");
}

// ---------------------------------------------------------------- the log thread

// When the forming group, if nobody asked for it, must be written anyway; kNoDeadline without one.
uint64_t LogImpl::NextTimer(uint64_t now) {
  // The oldest group that nobody asked for. One with a large record is closed from the start.
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
  // Appends do not wake this thread for the timer of their group. Instead it looks once per period
  // while there were appends lately, and is woken by the first one after a pause.
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
