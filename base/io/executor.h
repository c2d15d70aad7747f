// SPDX-License-Identifier: Apache-2.0
//
// Jobs on a bounded pool of threads, and three things to wait for. They work on any Scheduler, so
// the same code runs on real threads and in simulation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::io {

// Set once, waited for by any number. May be destroyed by a waiter as soon as its Wait returned.
class Event {
 public:
  explicit Event(Scheduler& scheduler) : scheduler_(scheduler) {}
  void Set();
  bool is_set() const { return word_.load(std::memory_order_acquire) != 0; }
  // False when the deadline (on MonotonicNs) passed first.
  bool Wait(uint64_t deadline_ns = kNoDeadline);

 private:
  Scheduler& scheduler_;
  std::atomic<uint32_t> word_{0};
};

// Open after `count` calls of CountDown; at once when that is 0.
class Latch {
 public:
  Latch(Scheduler& scheduler, uint32_t count) : scheduler_(scheduler), word_(count) {}
  void CountDown();
  bool is_open() const { return word_.load(std::memory_order_acquire) == 0; }
  bool Wait(uint64_t deadline_ns = kNoDeadline);

 private:
  Scheduler& scheduler_;
  std::atomic<uint32_t> word_;
};

// Mutual exclusion across I/O and waits, where a mutex must not be held.
class Turn {
 public:
  explicit Turn(Scheduler& scheduler) : scheduler_(scheduler) {}
  // Has the turn while it lives. Waiters are not served in the order in which they came.
  class Holder {
   public:
    explicit Holder(Turn* turn);
    ~Holder();
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    Turn* const turn_;
  };

 private:
  Scheduler& scheduler_;
  std::atomic<uint32_t> taken_{0};
};

// Threads start on first need, one for each job that finds none idle, up to `max_threads`, and live
// as long as the executor. Jobs start in the order of Post. A job must not throw, and must not wait
// for a job that was posted later, which may have no thread left.
class Executor {
 public:
  Executor(Scheduler& scheduler, std::string name, size_t max_threads,
           ThreadPriority priority = ThreadPriority::kInherited);
  ~Executor();  // Stop()s.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the job inside the call if not a single thread can be had.
  void Post(std::function<void()> job);
  // Runs all posted jobs, including those that they post, then ends the threads. By one thread at a
  // time, which is none of its own.
  void Stop();

 private:
  struct Worker {
    std::atomic<uint32_t> wake{0};
    std::unique_ptr<Thread> thread;
  };

  void Work(Worker* worker);
  Worker* TakeIdleLocked() CAIRN_REQUIRES(mutex_);
  void StartWorkerLocked() CAIRN_REQUIRES(mutex_);
  void JoinWorkers();

  Scheduler& scheduler_;
  const std::string name_;
  const size_t max_threads_;
  const ThreadPriority priority_;
  const uint64_t owner_process_;
  Mutex mutex_;
  std::deque<std::function<void()>> jobs_ CAIRN_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_ CAIRN_GUARDED_BY(mutex_);
  std::vector<Worker*> idle_ CAIRN_GUARDED_BY(mutex_);
  bool stopping_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn::io
