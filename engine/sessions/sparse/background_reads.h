// SPDX-License-Identifier: Apache-2.0
//
// The pages of one sparse session that are to be read in the background, by index: those that
// relaxed fetches lacked, and after them prefetched ones, until these are of no use any more.
//
// Thread-safe. No lock is held while pages are read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "cairn/status.h"

namespace cairn::engine {

class BackgroundReads {
 public:
  // Reads these pages, at most kSparsePagesAtOnce, on a thread of the executor. May throw
  // bad_alloc.
  using Bring = std::function<Status(std::span<const size_t> pages)>;

  // Both outlive this. May throw bad_alloc, as the next two.
  BackgroundReads(io::Scheduler* scheduler, io::Executor* executor, Bring bring);
  ~BackgroundReads() { Pause(); }
  BackgroundReads(const BackgroundReads&) = delete;
  BackgroundReads& operator=(const BackgroundReads&) = delete;

  // Do not block. False: earlier pages must be read first, or it is paused; nothing was noted.
  bool Demand(const std::set<size_t>& pages);
  // Pages whose reading has not begun by the deadline are left.
  bool Prefetch(const std::set<size_t>& pages, uint64_t deadline_ns);
  // The first error of reading since the last call. What else was noted then is forgotten.
  Status TakeError();

  // Waits for the job. What was noted is read behind Resume.
  void Pause();
  void Resume();

 private:
  bool NeedsJob() CAIRN_REQUIRES(mutex_);
  void PostJob();
  void EndJob() CAIRN_REQUIRES(mutex_);
  bool NextToRead();
  void RunJob() noexcept;

  io::Scheduler& scheduler_;
  io::Executor& executor_;
  const Bring bring_;

  Mutex mutex_;
  std::set<size_t> demanded_ CAIRN_GUARDED_BY(mutex_);
  std::map<size_t, uint64_t> ahead_ CAIRN_GUARDED_BY(mutex_);  // Deadlines.
  bool job_is_posted_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_paused_ CAIRN_GUARDED_BY(mutex_) = false;
  Status error_ CAIRN_GUARDED_BY(mutex_);
  std::vector<size_t> reading_;          // By the job, which must not throw.
  std::atomic<uint32_t> jobs_ended_{0};  // Word to wait for.
};

}  // namespace cairn::engine
