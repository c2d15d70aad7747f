// SPDX-License-Identifier: Apache-2.0
//
// Which calls are allowed when: open or closed, in which process, for writing, healthy; and the
// clocks that calls use.
//
// Thread-safe, but for SetLog. Takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/io/world.h"
#include "cairn/branch_types.h"
#include "cairn/options.h"
#include "cairn/status.h"
#include "wal/log.h"

namespace cairn::engine {

class Lifecycle {
 public:
  // The scheduler and options outlive this. `directory`: the store's name in errors.
  Lifecycle(io::Scheduler& scheduler, std::string directory, const Options* options);
  Lifecycle(const Lifecycle&) = delete;
  Lifecycle& operator=(const Lifecycle&) = delete;

  // Call before CheckWritable and PoisonStatus.
  void SetLog(const wal::Log* log) { log_ = log; }

  // --- A store is opened once, and closed once.
  void Open() { open_.store(true, std::memory_order_release); }
  void Close() { open_.store(false); }
  const std::atomic<bool>& open() const { return open_; }

  // Held by calls that use the executor, which ends in the store's Close: Close waits for them. A
  // call takes it before it checks whether the store is open, so Close either sees the call, or the
  // call sees that the store is closed.
  class Call {
   public:
    explicit Call(Lifecycle* of) : of_(of) { of_->calls_.fetch_add(1); }
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Lifecycle* const of_;
  };
  // REQUIRES: closed.
  void AwaitCalls();

  // --- Every public entry calls this before anything else. In a child of fork() no lock may be
  // taken, since a thread of the parent may have held it, and nothing shared may be written.
  Status CheckProcess() const;
  bool IsInChild() const;

  // --- Conditions of a call: kInvalidState, kInvalidArgument, kReadOnly, kPoisoned.
  Status CheckUsable() const;                            // Open.
  static Status CheckDurability(Durability durability);  // The level is one that exists.
  // As above, and neither read-only nor poisoned.
  Status CheckWritable() const { return CheckWritable(Durability::kPower); }
  Status CheckWritable(Durability durability) const;
  Status CheckWritable(const AppendOptions& options) const;
  Status PoisonStatus() const;  // kPoisoned with the cause, or Ok.

  // --- The wall clock as if nobody had set it since the store was opened: the time that is
  // recorded, and by which expiry and the order of eviction go.
  uint64_t NowNs() const;
  uint64_t opened_wall_ns() const { return opened_wall_ns_; }
  uint64_t Deadline(uint64_t timeout_ns) const;

 private:
  io::Scheduler& scheduler_;
  const std::string directory_;
  const Options& options_;
  const wal::Log* log_ = nullptr;
  const uint64_t process_id_ = scheduler_.ProcessId();
  const uint64_t opened_wall_ns_ = scheduler_.WallNs();
  const uint64_t opened_ns_ = scheduler_.MonotonicNs();
  std::atomic<bool> open_{false};
  std::atomic<uint32_t> calls_{0};
};

}  // namespace cairn::engine
