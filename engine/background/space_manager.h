// SPDX-License-Identifier: Apache-2.0
//
// The background: owns the thread that turns deltas into tables and gives space back, the parts
// that it works with, and the state that callers wait for. That thread alone writes the index,
// deletes tables that the tree named once and moves the start of the log, so none of that needs a
// lock; it takes the commit lock only to look and to log. Derived tables are written beside it
// (restore/derived_tables.h): numbers of tables, and the manifests that make them durable, are
// handed out in turns.
//
//   kNew -> kBetween -> kRound -> kBetween -> kRests -> kBetween -> ... -> kEnded
//
// In a round it copies (checkpoint_queue.h), drops expired branches (expirer.h), seals, reclaims
// log segments and rewrites (sealer.h, log_reclaimer.h, table_reclaimer.h), and evicts (evictor.h).
// Between rounds it answers waiting callers (space_requests.h). It rests until it is woken or
// something expires.
//
// Thread-safe, except where marked. No lock may be held around calls that wait: Compact, Pause,
// ReclaimAtClose, Stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/core/mutex.h"
#include "base/io/world.h"
#include "engine/background/checkpoint_queue.h"
#include "engine/background/dead_tables.h"
#include "engine/background/evictor.h"
#include "engine/background/expirer.h"
#include "engine/background/index_flusher.h"
#include "engine/background/joiner.h"
#include "engine/background/log_reclaimer.h"
#include "engine/background/log_throttle.h"
#include "engine/background/resting_segments.h"
#include "engine/background/sealer.h"
#include "engine/background/space_deps.h"
#include "engine/background/space_requests.h"
#include "engine/background/table_callbacks.h"
#include "engine/background/table_reclaimer.h"

namespace cairn::engine {

class SpaceManager final : public DiskSpaceWatcher {
 public:
  // Takes the store's part of the means; the manager adds its own.
  explicit SpaceManager(SpaceDeps of_store);
  SpaceManager(const SpaceManager&) = delete;
  SpaceManager& operator=(const SpaceManager&) = delete;

  // --- For the opening, by one thread.
  void SetLog(wal::Log* log, io::ParallelFor* parallel_for);
  // The index of a store that writes. It holds the tree up to this sequence.
  void SetIndex(std::shared_ptr<sstable::LsmIndex> index, uint64_t flushed_sequence);
  // kIoError when the system refuses a thread.
  Status Start();

  // --- For callers.
  // Waits for readers that keep the log from being given back, but not for long: kBusy.
  Status Compact();
  // Returns when the thread is idle; it stays so until there were as many Resumes.
  void Pause();
  bool Resume() { return rate_limiter_.Resume(); }  // False when there was no Pause left to undo.
  void Wake() { signals_.Wake(); }
  // A call was refused: wakes the thread to give back what it can.
  void OnRefused(const Status& status) override;
  // There is more room than before: wakes callers that wait for it.
  void OnFreed() override;
  // A record got its place. Under the commit lock. A record of a caller counts as use of the
  // device.
  void OnLogged(const wal::Log::Slot& slot, CommitOrigin origin);
  // The newest segment of the log that has a record.
  uint64_t newest_segment() const { return newest_segment_.load(); }
  // The last round failed for another reason than want of room.
  bool fails() const { return fails_.load(); }
  sstable::TableContext IndexContext();
  sstable::TableContext DataContext();  // For tables that hold appends.

  // --- For Close.
  // Waits for rounds while they give segments back, if there are too many or room is short.
  void ReclaimAtClose();
  // Ends the thread. Idempotent.
  void Stop();

  IndexFlusher& flusher() { return flusher_; }
  DeadTables& dead_tables() { return dead_tables_; }
  LogReclaimer& log_reclaimer() { return log_reclaimer_; }
  LogThrottle& throttle() { return throttle_; }
  const LogThrottle& throttle() const { return throttle_; }
  SpaceRequests& requests() { return requests_; }
  CheckpointQueue& checkpoints() { return checkpoints_; }
  RateLimiter& rate_limiter() { return rate_limiter_; }
  LogGate& gate() { return gate_; }
  const SpaceGauge& gauge() const { return gauge_; }
  const SpaceCounters& counters() const { return counters_; }
  sstable::TableCallbacks* reclaim_callbacks() { return &reclaim_callbacks_; }

 private:
  enum class Phase : uint8_t { kNew, kBetween, kRound, kRests, kEnded };
  struct Round;

  using LogHolder = std::optional<Pins::Held>;
  Result<LogHolder> CompactOnce();
  void AwaitHolder(uint64_t deadline_ns);
  void SetPhase(Phase phase);
  void Run();
  void Work(Round* round);
  Status ReclaimSpace(SpaceRound::Kind kind, bool* more);
  void Report(Round* round);
  bool AwaitWork(uint32_t seen, bool idle_work);

  SpaceDeps deps_;  // First: the parts refer to it.
  SpaceCounters counters_;
  SpaceRound round_;
  SpaceGauge gauge_;
  RateLimiter rate_limiter_;
  LogGate gate_;
  SpaceSignals signals_;
  IndexFlusher flusher_{deps_};
  DeadTables dead_tables_{deps_};
  Joiner joiner_{deps_, &flusher_};
  Sealer sealer_{deps_, &flusher_, &joiner_, &dead_tables_};
  LogThrottle throttle_{deps_};
  SpaceRequests requests_{deps_};
  TableReclaimer table_reclaimer_{deps_, &sealer_, &joiner_, &requests_};
  RestingSegments resting_{deps_, &sealer_, &flusher_, &dead_tables_, &requests_};
  LogReclaimer log_reclaimer_{deps_,      &sealer_,   &flusher_, &dead_tables_,
                              &requests_, &throttle_, &resting_};
  Evictor evictor_{deps_, &flusher_, &requests_};
  Expirer expirer_{deps_, &flusher_, &requests_};
  CheckpointQueue checkpoints_{deps_};
  ReclaimTableCallbacks reclaim_callbacks_{deps_};
  IndexTableCallbacks index_callbacks_{deps_, &flusher_};
  DataTableCallbacks data_callbacks_{deps_, this};

  Phase phase_ = Phase::kNew;                 // The thread's.
  std::atomic<uint64_t> newest_segment_{0};   // The log's newest that has a record.
  std::atomic<uint64_t> refused_wake_ns_{0};  // When a refusal last woke the thread.
  std::atomic<bool> short_of_room_{false};    // In the last round, and nothing was freed since.
  std::atomic<bool> fails_{false};
  std::atomic<uint64_t> compactions_wanted_{0};
  Mutex mutex_;
  uint64_t compactions_done_ CAIRN_GUARDED_BY(mutex_) = 0;
  Status compaction_status_ CAIRN_GUARDED_BY(mutex_);
  LogHolder compaction_holder_ CAIRN_GUARDED_BY(mutex_);

  std::unique_ptr<io::Thread> thread_;  // Last, so that it stops first.
};

}  // namespace cairn::engine
