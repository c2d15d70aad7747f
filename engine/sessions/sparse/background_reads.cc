// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/sparse/background_reads.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

BackgroundReads::BackgroundReads(io::Scheduler* scheduler, io::Executor* executor, Bring bring)
    : scheduler_(*scheduler), executor_(*executor), bring_(std::move(bring)) {
  reading_.reserve(kSparsePagesAtOnce);
}

bool BackgroundReads::Demand(const std::set<size_t>& pages) {
  {
    const MutexLock lock(&mutex_);
    if (is_paused_ || demanded_.size() > kSparsePagesAtOnce) return false;
    demanded_.insert(pages.begin(), pages.end());
    if (!NeedsJob()) return true;
  }
  PostJob();
  return true;
}

bool BackgroundReads::Prefetch(const std::set<size_t>& pages, uint64_t deadline_ns) {
  {
    const MutexLock lock(&mutex_);
    if (is_paused_ || demanded_.size() + ahead_.size() > kSparsePagesAtOnce) return false;
    for (const size_t page : pages) {
      uint64_t& known = ahead_.try_emplace(page, deadline_ns).first->second;
      known = std::max(known, deadline_ns);
    }
    if (!NeedsJob()) return true;
  }
  PostJob();
  return true;
}

Status BackgroundReads::TakeError() {
  const MutexLock lock(&mutex_);
  return std::exchange(error_, Status::Ok());
}

void BackgroundReads::Pause() {
  while (true) {
    const uint32_t ended = jobs_ended_.load();
    {
      const MutexLock lock(&mutex_);
      is_paused_ = true;
      if (!job_is_posted_) return;
    }
    scheduler_.Wait(jobs_ended_, ended, io::kNoDeadline);
  }
}

void BackgroundReads::Resume() {
  {
    const MutexLock lock(&mutex_);
    is_paused_ = false;
    if (!NeedsJob()) return;
  }
  // If there is no memory, the next that notes something posts it.
  static_cast<void>(CatchBadAlloc([this] {
    PostJob();
    return Status::Ok();
  }));
}

// True: the caller posts one, without the lock, as it runs inside the call where there is no
// thread.
bool BackgroundReads::NeedsJob() {
  if (job_is_posted_ || (demanded_.empty() && ahead_.empty())) return false;
  job_is_posted_ = true;
  return true;
}

void BackgroundReads::PostJob() {
  try {
    executor_.Post([this] { RunJob(); });
  } catch (const std::bad_alloc&) {
    const MutexLock lock(&mutex_);
    EndJob();
    throw;
  }
}

void BackgroundReads::EndJob() {
  job_is_posted_ = false;
  jobs_ended_.fetch_add(1);
  scheduler_.WakeAll(jobs_ended_);
}

// Into reading_: demand first; prefetched pages that are too late are left. False: the job ends.
bool BackgroundReads::NextToRead() {
  const uint64_t now_ns = scheduler_.MonotonicNs();
  reading_.clear();
  const MutexLock lock(&mutex_);
  while (!is_paused_ && !demanded_.empty() && reading_.size() < kSparsePagesAtOnce) {
    reading_.push_back(*demanded_.begin());
    demanded_.erase(demanded_.begin());
  }
  // Few, so that a fetch that comes meanwhile waits for few.
  while (!is_paused_ && !ahead_.empty() && reading_.size() < kSparsePagesAhead) {
    const auto [page, deadline_ns] = *ahead_.begin();
    ahead_.erase(ahead_.begin());
    if (now_ns < deadline_ns) reading_.push_back(page);
  }
  if (reading_.empty()) EndJob();
  return !reading_.empty();
}

void BackgroundReads::RunJob() noexcept {
  while (NextToRead()) {
    Status brought = CatchBadAlloc([&] { return bring_(reading_); });
    if (brought.ok()) continue;
    const MutexLock lock(&mutex_);
    if (error_.ok()) error_ = std::move(brought);
    demanded_.clear();
    ahead_.clear();
  }
}

}  // namespace cairn::engine
