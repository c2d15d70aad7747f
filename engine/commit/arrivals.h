// SPDX-License-Identifier: Apache-2.0
//
// Jobs that wait for something nobody tells of, such as an event of a device: a thread of its own
// looks again and again, and posts each job to the executor when what it waits for is there. The
// thread begins with the first such job.
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

// What a job waits for before it reads what it was given. All null: nothing.
struct Arrival {
  // True as well where waiting would fail at once. Must neither block nor throw.
  std::function<bool()> arrived{};
  // Until the deadline, and as long as it is wanted.
  std::function<Status(uint64_t deadline_ns, const std::function<bool()>& wanted)> await{};
  // It is not waited for any more, and what it brings touches nothing any more. May be null.
  std::function<void()> give_up{};
};

class Arrivals {
 public:
  struct Job {
    std::function<bool()> arrived;  // As Arrival::arrived.
    // On the executor. Must not throw. Shared, so that it can be posted without memory for it.
    std::shared_ptr<std::function<void()>> run;
    uint64_t deadline_ns = io::kNoDeadline;  // It is posted then, too.
  };

  explicit Arrivals(const io::World& world) : world_(world) {}
  ~Arrivals() { Stop(); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // REQUIRES: before the first Post; the executor is there until Stop.
  void Start(io::Executor* executor) { executor_ = executor; }
  // Posts the job at once if it has arrived, or if no thread can be had: then it waits itself. A
  // number for Withdraw.
  uint64_t Post(Job job);
  // True: the job is gone, and was not posted. Either way nobody asks whether it has arrived.
  bool Withdraw(uint64_t number);
  // Posts all that are left. Idempotent.
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
