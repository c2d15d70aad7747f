// SPDX-License-Identifier: Apache-2.0
#include "base/io/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "base/core/mutex.h"
#include "base/core/out_of_memory.h"

namespace cairn::io {

// One call of Run. Shared with helpers, which may come late, when it is over.
class ParallelFor::Loop {
 public:
  Loop(Scheduler& scheduler, size_t count, const std::function<Status(size_t)>& job)
      : scheduler_(scheduler), count_(count), job_(&job) {}

  void Work() {
    for (size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      Status status = CatchBadAlloc([&] { return (*job_)(i); });
      if (!status.ok()) Fail(std::move(status));
    }
  }

  void Help() {
    {
      MutexLock lock(&mutex_);
      if (over_) return;
      helping_.fetch_add(1);
    }
    Work();
    helping_.fetch_sub(1);
    scheduler_.WakeAll(helping_);
  }

  // No thread touches the jobs' data after this returned.
  Status End() {
    {
      MutexLock lock(&mutex_);
      over_ = true;
    }
    for (uint32_t left = helping_.load(); left != 0; left = helping_.load()) {
      scheduler_.Wait(helping_, left, kNoDeadline);
    }
    MutexLock lock(&mutex_);
    return std::move(status_);
  }

  void SkipTheRest() { next_.store(count_); }

 private:
  void Fail(Status status) {
    SkipTheRest();
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
  }

  Scheduler& scheduler_;
  const size_t count_;
  const std::function<Status(size_t)>* const job_;
  std::atomic<size_t> next_{0};
  std::atomic<uint32_t> helping_{0};
  Mutex mutex_;
  bool over_ CAIRN_GUARDED_BY(mutex_) = false;
  Status status_ CAIRN_GUARDED_BY(mutex_);
};

Status ParallelFor::Run(const std::function<Status()>& foreground, size_t count,
                        const std::function<Status(size_t)>& job) {
  const auto loop = std::make_shared<Loop>(scheduler_, count, job);
  for (size_t i = posted_->load(); i < std::min(helpers_, count); ++i) {
    posted_->fetch_add(1);
    try {
      executor_->Post([loop, posted = posted_] {
        posted->fetch_sub(1);
        loop->Help();
      });
    } catch (const std::bad_alloc&) {
      posted_->fetch_sub(1);  // The helpers posted so far do it.
      break;
    }
  }
  Status status = CatchBadAlloc(foreground);
  if (status.ok()) {
    loop->Work();
  } else {
    loop->SkipTheRest();
  }
  const Status of_jobs = loop->End();
  return status.ok() ? of_jobs : status;
}

}  // namespace cairn::io
