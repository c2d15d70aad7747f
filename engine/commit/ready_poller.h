// SPDX-License-Identifier: Apache-2.0
//
// Jobs that wait for something which sends no signal, such as an event of a device: a thread of its
// own polls, and posts each job to the executor once its condition holds. The thread starts with
// the first such job.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "base/io/world.h"
#include "cairn/status.h"

namespace cairn::engine {

// The condition under which a job may read its input. All null: none.
struct Arrival {
  // True also if waiting would fail at once. Must neither block nor throw.
  std::function<bool()> arrived{};
  // Waits until the deadline, and only while `wanted` is true.
  std::function<Status(uint64_t deadline_ns, const std::function<bool()>& wanted)> await{};
  // Stops waiting; afterwards nothing touches the memory that was to be filled. May be null.
  std::function<void()> give_up{};
};

class ReadyPoller {
 public:
  struct Job {
    std::function<bool()> arrived;  // As Arrival::arrived.
    // On the executor. Must not throw. Shared, so that posting it allocates nothing for it.
    std::shared_ptr<std::function<void()>> run;
    uint64_t deadline_ns = io::kNoDeadline;  // It is posted then, too.
  };

  explicit ReadyPoller(const io::World& world) : world_(world) {}
  ~ReadyPoller() { Stop(); }
  ReadyPoller(const ReadyPoller&) = delete;
  ReadyPoller& operator=(const ReadyPoller&) = delete;

  // REQUIRES: before the first Post; the executor lives until Stop.
  void Start(io::Executor* executor) { executor_ = executor; }
  // Posts the job at once if it has arrived, or if no thread can be started: then the job itself
  // waits. Returns a number for Withdraw.
  uint64_t Post(Job job);
  // True: the job is gone and was not posted. In both cases its `arrived` is not called any more.
  bool Withdraw(uint64_t number);
  // Posts all jobs that are left. Idempotent.
  void Stop();

 private:
  void Run();

  const io::World world_;
  io::Executor* executor_ = nullptr;
  Mutex mutex_;
  struct Waiting {
    uint64_t number = 0;
    Job job;
  };
  std::vector<Waiting> waiting_ CAIRN_GUARDED_BY(mutex_);
  uint64_t last_number_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool stopped_ CAIRN_GUARDED_BY(mutex_) = false;
  std::unique_ptr<io::Thread> thread_ CAIRN_GUARDED_BY(mutex_);
  std::atomic<uint32_t> version_{0};  // Changes when the thread has to look.
};

}  // namespace cairn::engine
