// SPDX-License-Identifier: Apache-2.0
//
// Shared by everything that writes: its parts, the services it needs from above, and its counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/options.h"
#include "engine/commit/append_limits.h"
#include "engine/commit/committer.h"
#include "engine/commit/lifecycle.h"
#include "engine/commit/packed_lane.h"
#include "engine/commit/ready_poller.h"
#include "engine/commit/staging.h"
#include "engine/commit/tickets.h"
#include "engine/commit/timer.h"
#include "engine/commit/tree_access.h"
#include "engine/config/memory_line.h"
#include "engine/device/gpu_source.h"
#include "engine/tree/memory/op.h"
#include "sstable/table_files.h"
#include "wal/log.h"

namespace cairn::engine {

// Services besides those of CommitCallbacks. Thread-safe; no lock may be held around the calls.
class WriteCallbacks : public CommitCallbacks {
 public:
  // A reference to the store, for posted jobs and for results that outlive a call.
  virtual std::shared_ptr<void> Hold() = 0;

  // --- Room
  // Sleeps, so that callers go on no faster than the log is given back.
  virtual void SlowDown(uint64_t bytes, uint64_t deadline_ns) = 0;
  // The error for a refused caller that does not wait: `refusal`, or kBusy while room is being made
  // for it.
  virtual Status WhileRoomIsMade(BranchId branch, uint64_t bytes, const Status& refusal) = 0;
  // Wakes the space thread: there is something to seal, or to give back.
  virtual void WakeSpaceThread() = 0;
  // Content of the log died: sealing makes it smaller.
  virtual void OnFreed() = 0;

  // --- Large appends
  // The log's newest segment, and all that come after it, stay while this is held.
  virtual std::shared_ptr<void> KeepNewestSegment() = 0;

  // --- Derived tables
  virtual sstable::TableContext DataTables() = 0;
  // Deletes a table that no record names. If that fails its bytes stay counted, and the next
  // opening deletes it.
  virtual void DeleteTable(const TableRef& table) = 0;
};

// Counters of calls that belong to no part of the store. They only grow.
struct CallCounters {
  std::atomic<uint64_t> busy{0}, cancelled{0}, kv_shed{0};
  std::atomic<uint64_t> replayed_records{0};
};

// The referenced objects outlive everything that writes.
struct WriteDeps {
  io::World world;
  const Options* options = nullptr;
  WriteCallbacks* callbacks = nullptr;
  Lifecycle* lifecycle = nullptr;
  Committer* committer = nullptr;
  TreeAccess* access = nullptr;
  const AppendLimits* limits = nullptr;
  Tickets* tickets = nullptr;
  StagingPool* staging = nullptr;
  GpuSources* gpus = nullptr;
  CallCounters* counters = nullptr;
  // From the opening of the log on.
  wal::Log* log = nullptr;
  Timer* timer = nullptr;
  io::Executor* executor = nullptr;
  ReadyPoller* ready_poller = nullptr;
  uint32_t executor_threads = 1;

  std::mutex& mutex() const { return committer->mutex(); }  // The commit lock.
  Tree& tree() const { return committer->tree(); }          // It guards this.
};

inline PackDeps PackingOf(const WriteDeps& deps) {
  return {.staging = deps.staging,
          .scheduler = deps.world.scheduler.get(),
          .executor = deps.executor,
          .helpers = deps.executor_threads};
}

// A ticket for a call that began then, with all the memory that it needs.
inline NewTicket MakeTicket(const WriteDeps& deps, const AppendOptions& options,
                            uint64_t started_ns) {
  return deps.tickets->Make(options, started_ns, deps.lifecycle->Deadline(options.timeout_ns),
                            std::shared_ptr<wal::Log>(deps.callbacks->Hold(), deps.log));
}

}  // namespace cairn::engine
