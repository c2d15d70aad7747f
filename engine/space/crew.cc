// SPDX-License-Identifier: Apache-2.0
#include "engine/space/crew.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>

#include "base/core/out_of_memory.h"

namespace cairn::engine {

// One Run. Shared with helpers, which may come late, when it is over.
class Crew::Shift {
 public:
  Shift(io::Scheduler& scheduler, size_t count, const std::function<Status(size_t)>& job)
      : scheduler_(scheduler), count_(count), job_(&job) {}

  void Work() {
    for (size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      Status status = Guarded([&] { return (*job_)(i); });
      if (!status.ok()) Fail(std::move(status));
    }
  }

  void Help() {
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      helping_.fetch_add(1);
    }
    Work();
    helping_.fetch_sub(1);
    scheduler_.WakeAll(helping_);
  }

  // Nobody touches what the jobs use once this returned.
  Status End() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    for (uint32_t left = helping_.load(); left != 0; left = helping_.load()) {
      scheduler_.Wait(helping_, left, io::kNoDeadline);
    }
    return std::move(status_);
  }

  void LeaveOutTheRest() { next_.store(count_); }

 private:
  void Fail(Status status) {
    LeaveOutTheRest();
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }

  io::Scheduler& scheduler_;
  const size_t count_;
  const std::function<Status(size_t)>* const job_;
  std::atomic<size_t> next_{0};
  std::atomic<uint32_t> helping_{0};
  std::mutex mutex_;  // Guards the rest.
  bool over_ = false;
  Status status_;
};

Status Crew::Run(const std::function<Status()>& own, size_t count,
                 const std::function<Status(size_t)>& job) {
  const auto shift = std::make_shared<Shift>(scheduler_, count, job);
  for (size_t i = posted_->load(); i < std::min(helpers_, count); ++i) {
    posted_->fetch_add(1);
    try {
      executor_->Post([shift, posted = posted_] {
        posted->fetch_sub(1);
        shift->Help();
      });
    } catch (const std::bad_alloc&) {
      posted_->fetch_sub(1);  // Those that are there do it.
      break;
    }
  }
  Status status = Guarded(own);
  if (status.ok()) {
    shift->Work();
  } else {
    shift->LeaveOutTheRest();
  }
  const Status of_jobs = shift->End();
  return status.ok() ? of_jobs : status;
}

}  // namespace cairn::engine
