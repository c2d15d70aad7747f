// SPDX-License-Identifier: Apache-2.0
#include "engine/background/space_manager.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/background/trim.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_loader.h"

namespace cairn::engine {

using Kind = SpaceRound::Kind;

// One round: its task and its results.
struct SpaceManager::Round {
  bool idle = false;
  uint64_t compactions = 0;  // Wanted when it began.
  SpaceRequests::Pass pass{};
  uint64_t used_before = 0;
  bool evicted = false, made_room = false;
  bool more = false;  // It was one step of several.
  Status status{};
};

namespace {

// Work without room may be possible after something else was given back; damage does not stop other
// work, and damaged content may be evicted or dropped.
bool Goes(const Status& status) {
  return status.ok() || status.code() == StatusCode::kNoSpace ||
         status.code() == StatusCode::kCorruption;
}

}  // namespace

SpaceManager::SpaceManager(SpaceDeps of_store)
    : deps_(std::move(of_store)),
      gauge_(deps_.options, deps_.ledger),
      rate_limiter_(*deps_.world.scheduler, deps_.options->background_bytes_per_second,
                    [this] { return gauge_.Urgency(); }),
      gate_(*deps_.world.scheduler),
      signals_(*deps_.world.scheduler, &rate_limiter_) {
  deps_.gauge = &gauge_;
  deps_.rate_limiter = &rate_limiter_;
  deps_.gate = &gate_;
  deps_.signals = &signals_;
  deps_.round = &round_;
  deps_.counters = &counters_;
}

// ---------------------------------------------------------------- opening and closing

void SpaceManager::SetLog(wal::Log* log, io::ParallelFor* parallel_for) {
  deps_.log = log;
  deps_.parallel_for = parallel_for;
  gauge_.SetLog(log);
}

void SpaceManager::SetIndex(std::shared_ptr<sstable::LsmIndex> index, uint64_t flushed_sequence) {
  deps_.index = std::move(index);
  flusher_.SetFlushed(flushed_sequence);
}

Status SpaceManager::Start() {
  thread_ = deps_.world.scheduler->StartThread(
      "cairn-space", [this] { Run(); }, io::ThreadPriority::kBackground);
  if (thread_ == nullptr) return Status(StatusCode::kIoError, "no thread for space");
  return Status::Ok();
}

// Short-lived processes that close before the background did anything must not leave ever more
// segments, nor leave a store at its cap to the next one. Waits for rounds while they give some
// back; the one under way may have missed them.
void SpaceManager::ReclaimAtClose() {
  if (thread_ == nullptr) return;
  const auto is_due = [this] {
    return gauge_.ShortSegments() > kShortSegmentsMax || gauge_.DataIsShort();
  };
  uint64_t left = deps_.log->counters().segments_live;
  for (int vain = 0; vain < 2 && is_due();) {
    const uint32_t seen = signals_.rounds();
    if (rate_limiter_.paused() || !deps_.log->poisoned().ok()) return;
    signals_.Wake();
    signals_.AwaitRound(seen, io::kNoDeadline);
    const uint64_t now = deps_.log->counters().segments_live;
    vain = now < left ? 0 : vain + 1;
    left = now;
  }
}

void SpaceManager::Stop() {
  rate_limiter_.Stop();
  gate_.End();
  signals_.Wake();
  thread_.reset();
}

// ---------------------------------------------------------------- callers

void SpaceManager::OnLogged(const wal::Log::Slot& slot, CommitOrigin origin) {
  if (origin == CommitOrigin::kCaller) deps_.reader->RecordUse();
  if (newest_segment_.load(std::memory_order_relaxed) < slot.location.segment) {
    newest_segment_.store(slot.location.segment, std::memory_order_relaxed);
    signals_.Wake();
  }
  if (flusher_.BecomesDue(slot.sequence)) signals_.Wake();
  if (sealer_.BecomesDue()) signals_.Wake();
  if (table_reclaimer_.BecomesDue()) signals_.Wake();
  if (expirer_.BecomesDue()) signals_.Wake();
}

void SpaceManager::OnFreed() {
  if (short_of_room_.exchange(false)) signals_.Wake();
}

// Now and then also when a round tried in vain and waits for something to be freed.
void SpaceManager::OnRefused(const Status& status) {
  if (status.code() != StatusCode::kNoSpace) return;
  const uint64_t now_ns = deps_.world.scheduler->MonotonicNs();
  const uint64_t woken_ns = refused_wake_ns_.load();
  if (short_of_room_.load() && now_ns < woken_ns + kRefusedAgainNs) return;
  refused_wake_ns_.store(now_ns);
  signals_.Wake();
}

Status SpaceManager::Compact() {
  CAIRN_RETURN_IF_ERROR(deps_.callbacks->CheckWritable());
  if (rate_limiter_.paused()) {
    return Status(StatusCode::kInvalidState, "the background is paused; ResumeBackground first");
  }
  deps_.callbacks->ApplyAllCoalesced();
  uint64_t deadline_ns = 0;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const LogHolder holder, CompactOnce());
    if (!holder.has_value()) return Status::Ok();
    const uint64_t now_ns = deps_.world.scheduler->MonotonicNs();
    if (deadline_ns == 0) deadline_ns = now_ns + kCompactAwaitsNs;
    if (now_ns >= deadline_ns) {
      return Status(StatusCode::kBusy,
                    "the log is not given back: " + holder->ToString(now_ns) + "; retry");
    }
    AwaitHolder(deadline_ns);
  }
}

// Returns when nobody needs the oldest segment any more. The end of a pin that a round was held by
// makes another round.
void SpaceManager::AwaitHolder(uint64_t deadline_ns) {
  bool in_time = true;
  while (in_time && deps_.callbacks->CheckWritable().ok()) {
    const uint32_t seen = signals_.rounds();
    const uint64_t oldest = deps_.log->Segments().front().number;
    if (!deps_.reader->pins().HolderOf(oldest).has_value()) return;
    in_time = signals_.AwaitRound(seen, deadline_ns);
  }
}

// A round that does everything. The result: who kept it from giving back the log.
Result<SpaceManager::LogHolder> SpaceManager::CompactOnce() {
  const uint64_t wanted = compactions_wanted_.fetch_add(1) + 1;
  signals_.Wake();
  while (true) {
    const uint32_t seen = signals_.rounds();
    {
      const MutexLock lock(&mutex_);
      if (compactions_done_ >= wanted) {
        CAIRN_RETURN_IF_ERROR(compaction_status_);
        return compaction_holder_;
      }
    }
    CAIRN_RETURN_IF_ERROR(deps_.callbacks->CheckWritable());
    signals_.AwaitRound(seen, io::kNoDeadline);
  }
}

void SpaceManager::Pause() {
  rate_limiter_.Pause();
  signals_.EndRound();  // Nobody makes room now: waiting callers are notified.
  gate_.Wake();
}

sstable::TableContext SpaceManager::IndexContext() {
  sstable::TableContext context = deps_.reader->tables().context();
  context.callbacks = &index_callbacks_;
  return context;
}

sstable::TableContext SpaceManager::DataContext() {
  sstable::TableContext context = deps_.reader->tables().context();
  context.callbacks = &data_callbacks_;
  return context;
}

// ---------------------------------------------------------------- the thread

void SpaceManager::SetPhase(Phase phase) {
  switch (phase_) {
    case Phase::kNew: CAIRN_CHECK(phase == Phase::kBetween); break;
    case Phase::kBetween: CAIRN_CHECK(phase != Phase::kNew && phase != Phase::kBetween); break;
    case Phase::kRound:
    case Phase::kRests: CAIRN_CHECK(phase == Phase::kBetween); break;
    case Phase::kEnded: CAIRN_CHECK(false);
  }
  phase_ = phase;
}

void SpaceManager::Run() {
  SetPhase(Phase::kBetween);
  bool idle = false;
  while (true) {
    const uint32_t seen = signals_.wakes();
    if (!rate_limiter_.Begin().ok()) break;  // After reading the word: later wakes are seen.
    SetPhase(Phase::kRound);
    checkpoints_.RunAll();
    Round round{.idle = idle, .compactions = compactions_wanted_.load()};
    round.pass = requests_.BeginPass();
    round.used_before = deps_.ledger->used_bytes();
    Work(&round);
    rate_limiter_.End();
    SetPhase(Phase::kBetween);
    const bool goes = Goes(round.status);
    Report(&round);
    // Go on until it is enough, or nothing is left to take.
    if ((round.evicted || round.more) && goes) {
      idle = false;
      continue;
    }
    // A failed attempt is repeated after something else happened.
    const bool tried = idle && round_.reclaimed_bytes() == 0;
    const bool idle_work =
        goes && !tried && (table_reclaimer_.IdleWorkIsDue() || resting_.IdleWorkIsDue());
    SetPhase(Phase::kRests);
    idle = AwaitWork(seen, idle_work);
    SetPhase(Phase::kBetween);
  }
  SetPhase(Phase::kEnded);
  checkpoints_.End();
  signals_.EndRound();
}

void SpaceManager::Work(Round* round) {
  round_.Begin();
  Status& status = round->status;
  try {
    deps_.ledger->LookAtDisk();
    (void)deps_.manifest->CountWritten();  // Each segment of the log begins a round.
    {
      Committer::Lock lock(deps_.mutex());
      status = DecideAll(&deps_.tree(), &lock);
    }
    if (status.ok()) status = expirer_.CountFutureAsNow();
    if (status.ok()) status = expirer_.DropExpired();
    if (Goes(status)) {
      bool all = false;
      {
        const MutexLock lock(&mutex_);
        all = round->compactions > compactions_done_;
      }
      status = ReclaimSpace(all           ? Kind::kAll
                            : round->idle ? Kind::kIdle
                                          : Kind::kBusy,
                            &round->more);
    }
    if (Goes(status)) {
      const bool stuck = !round->more && !round_.held();
      const Status evict =
          evictor_.EvictAsNeeded(round->pass.requests, stuck, &round->evicted, &round->made_room);
      if (status.ok() || !Goes(evict)) status = evict;
    }
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
}

// Reports the results to all that wait for them.
void SpaceManager::Report(Round* round) {
  Status& status = round->status;
  const bool goes = Goes(status);
  if (!goes) gate_.Open();
  const bool is_short = status.code() == StatusCode::kNoSpace;
  short_of_room_ = is_short;
  if ((status.ok() || is_short) && !round_.would_not_go().ok()) status = round_.would_not_go();
  if (!rate_limiter_.stopped()) fails_ = !status.ok() && status.code() != StatusCode::kNoSpace;
  {
    const MutexLock lock(&mutex_);
    // Waiting callers may not have looked by the end of the next round.
    if (round->compactions > compactions_done_) {
      compaction_status_ = status;
      compaction_holder_ = round_.log_holder();
    }
    compactions_done_ = round->compactions;
  }
  const bool made = round->made_room || round->more;
  // Callers that want room go on waiting: a reader that ends wakes this thread.
  const bool waits_for_readers = round_.held() && goes && !made;
  requests_.EndPass(std::move(round->pass), waits_for_readers ? SpaceRequests::Ended::kAwaitsReaders
                                            : made            ? SpaceRequests::Ended::kMade
                                                              : SpaceRequests::Ended::kInVain);
  // Even if nobody waits: the log may have been refused when there was less room.
  deps_.ledger->LookAtDisk();
  const bool freed = deps_.ledger->used_bytes() < round->used_before &&
                     deps_.ledger->room(wal::Purpose::kData) >= deps_.options->segment_bytes;
  if (round->evicted || round->more || freed) deps_.log->SpaceWasFreed();
  signals_.EndRound();
  if (!status.ok() && !rate_limiter_.stopped()) deps_.callbacks->OnEventOf("space: ", status);
}

// One round of everything that makes tables of the log and gives space back. Work without room is
// skipped and the rest done, so the round may free what was lacking. kNoSpace, kCorruption:
// something was skipped. If evicting gives more room at once, one step is a round, and there is
// `more`.
Status SpaceManager::ReclaimSpace(Kind kind, bool* more) {
  const bool all = kind == Kind::kAll;
  const auto enough = [&](bool stepped) {
    *more = stepped && !all && requests_.RoomIsShort();
    return *more;
  };
  Status left, damaged;
  const auto leave = [&](Status status) {
    if (status.ok() || !Goes(status)) return status;
    (status.code() == StatusCode::kCorruption ? damaged : left) = std::move(status);
    return Status::Ok();
  };
  const auto outcome = [&] { return damaged.ok() ? left : damaged; };
  round_.BeginReclaim();
  // Before sealing, while the ids are in memory: reading them back from tables one by one took ten
  // times as long as the seal.
  if (deps_.indexer != nullptr)
    deps_.indexer->CatchUpAll([this] { return !rate_limiter_.stopped(); });
  const Status trimmed = TrimNodes(deps_, &flusher_);  // Nothing else depends on it.
  const auto give_back_dead = [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(dead_tables_.DeleteAll());
    return resting_.GiveBackDead();
  };
  CAIRN_RETURN_IF_ERROR(give_back_dead());
  // Makes tables beside the log segments that they replace. They do not use the reserve, which is
  // for one segment after the other.
  const wal::Log::Counters log = deps_.log->counters();
  const bool at_once = log.segment_bytes_live + (all ? log.segment_bytes_resting : 0) <=
                       deps_.ledger->room(wal::Purpose::kData);
  if (at_once) {
    CAIRN_RETURN_IF_ERROR(
        leave(all ? sealer_.Seal({.but = resting_.WellPacked()}) : sealer_.SealDue()));
  }
  const bool sealed = at_once && outcome().ok();
  CAIRN_RETURN_IF_ERROR(leave(all && sealed ? flusher_.FlushTree() : flusher_.FlushTreeIfDue()));
  gate_.BeginReclaim();
  while (true) {
    bool reclaimed = true, rewritten = true, rewrote = false;
    while (reclaimed && (all || gauge_.LogIsLong() || requests_.RoomIsShort())) {
      CAIRN_RETURN_IF_ERROR(leave(log_reclaimer_.ReclaimOldest(kind, &reclaimed)));
      CAIRN_RETURN_IF_ERROR(give_back_dead());
      checkpoints_.RunAll();  // While others write this may take long.
      CAIRN_RETURN_IF_ERROR(rate_limiter_.GoOn());
      if (enough(reclaimed)) return outcome();
    }
    // Last: a damaged table must not keep the log from being given back.
    while (rewritten && !table_reclaimer_.HasDoneEnough(kind)) {
      CAIRN_RETURN_IF_ERROR(leave(table_reclaimer_.RewriteEmptiest(kind, &rewritten)));
      if (!rewritten) CAIRN_RETURN_IF_ERROR(leave(resting_.PackEmptiest(kind, &rewritten)));
      if (!rewritten && !requests_.RoomIsShort()) {
        CAIRN_RETURN_IF_ERROR(leave(table_reclaimer_.MergeSmallTables(&rewritten)));
      }
      if (rewritten) CAIRN_RETURN_IF_ERROR(give_back_dead());
      rewrote |= rewritten;
      checkpoints_.RunAll();
      CAIRN_RETURN_IF_ERROR(rate_limiter_.GoOn());
      if (enough(rewritten)) return outcome();
      if (rewritten && throttle_.IsFull()) break;
    }
    // Appends wait for the log, nobody for a table.
    if (rewritten && !table_reclaimer_.HasDoneEnough(kind)) continue;
    if (left.ok() || !rewrote) break;
    left = Status::Ok();
  }
  if (all && !sealed) {
    left = Status::Ok();
    CAIRN_RETURN_IF_ERROR(leave(sealer_.Seal({.but = resting_.WellPacked()})));
    CAIRN_RETURN_IF_ERROR(leave(flusher_.FlushTree()));
  }
  if (kind == Kind::kIdle) CAIRN_RETURN_IF_ERROR(leave(joiner_.JoinChains()));
  CAIRN_RETURN_IF_ERROR(give_back_dead());       // Joins may have ended the last use of some.
  round_.KeepGoing(deps_.log->ReleaseBelow(0));  // Those that could not be released before.
  return outcome().ok() ? trimmed : outcome();
}

// Waits until the thread is woken, or something expires. True: `idle_work` should be done, and the
// log grew little for a while.
bool SpaceManager::AwaitWork(uint32_t seen, bool idle_work) {
  const uint64_t expiry_ns = expirer_.NextExpiry();
  uint64_t trim_ns = deps_.world.scheduler->MonotonicNs() + kKeptIdleNs;
  while (true) {
    const uint64_t written = deps_.log->counters().bytes_written;
    const uint64_t rested_ns = deps_.world.scheduler->MonotonicNs() + kIdleNs;
    const bool rests = idle_work && rested_ns < expiry_ns;
    const uint64_t until_ns = rests ? rested_ns : expiry_ns;
    PageCache& pages = deps_.reader->page_cache();
    const bool keeps = deps_.arena->kept_bytes() != 0 || pages.kept_bytes() != 0;
    const bool trims = keeps && trim_ns < until_ns;
    if (signals_.AwaitWake(seen, trims ? trim_ns : until_ns)) return false;
    if (trims) {
      deps_.arena->Trim();
      pages.Trim();
      trim_ns += kKeptIdleNs;
      continue;
    }
    if (!rests) return false;
    if (deps_.log->counters().bytes_written - written < kIdleLogBytes) return true;
  }
}

}  // namespace cairn::engine
