// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/ready_poller.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

uint64_t ReadyPoller::Post(Job job) {
  if (!job.arrived()) {
    const MutexLock lock(&mutex_);
    if (!stopped_ && thread_ == nullptr) {
      thread_ = world_.scheduler->StartThread("cairn-arrive", [this] { Run(); });
    }
    if (!stopped_ && thread_ != nullptr) {
      waiting_.push_back({++last_number_, std::move(job)});
      version_.fetch_add(1, std::memory_order_release);
      world_.scheduler->WakeAll(version_);
      return last_number_;
    }
  }
  executor_->Post([run = std::move(job.run)] { (*run)(); });
  return 0;
}

bool ReadyPoller::Withdraw(uint64_t number) {
  Job job;  // Its resources are freed without the lock.
  const MutexLock lock(&mutex_);
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& one) { return one.number == number; });
  if (found == waiting_.end()) return false;
  std::swap(job, found->job);
  waiting_.erase(found);
  return true;
}

void ReadyPoller::Stop() {
  std::unique_ptr<io::Thread> thread;
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    version_.fetch_add(1, std::memory_order_release);
  }
  world_.scheduler->WakeAll(version_);
}

// Moving a job takes no memory; if the executor has none for a job, it runs here.
void ReadyPoller::Run() {
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    Job arrived;
    uint64_t look_ns = io::kNoDeadline;
    {
      const MutexLock lock(&mutex_);
      const uint64_t now_ns = world_.scheduler->MonotonicNs();
      const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
        mutex_.AssertHeld();
        return stopped_ || now_ns >= one.job.deadline_ns || one.job.arrived();
      });
      if (found != waiting_.end()) {
        arrived = std::move(found->job);
        waiting_.erase(found);
      } else if (stopped_) {
        return;
      } else if (!waiting_.empty()) {
        look_ns = now_ns + kGpuArrivalLookNs;
      }
    }
    if (arrived.run == nullptr) {
      world_.scheduler->Wait(version_, seen, look_ns);
      continue;
    }
    const Status posted = CatchBadAlloc([&] {
      executor_->Post([run = arrived.run] { (*run)(); });
      return Status::Ok();
    });
    if (!posted.ok()) (*arrived.run)();
  }
}

}  // namespace cairn::engine
