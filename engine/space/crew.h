// SPDX-License-Identifier: Apache-2.0
//
// One thread's loops, shared with helpers from an executor: while it moves bytes, they work on
// others.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/io/executor.h"
#include "cairn/status.h"

namespace cairn::engine {

class Crew {
 public:
  // At most `helpers` jobs of the executor at a time; 0: none, then it may be null.
  Crew(io::Scheduler& scheduler, io::Executor* executor, size_t helpers)
      : scheduler_(scheduler), executor_(executor), helpers_(helpers) {}

  // Runs `own` on this thread, and job(0) to job(count - 1) in any order on the helpers and, after
  // `own`, on this thread. Returns when all has ended: the error of `own`, else that of a job.
  // After an error jobs are left out. Helpers that find no thread in time are not waited for.
  // std::bad_alloc is kOutOfMemory.
  Status Run(const std::function<Status()>& own, size_t count,
             const std::function<Status(size_t)>& job);

 private:
  class Shift;
  io::Scheduler& scheduler_;
  io::Executor* const executor_;
  const size_t helpers_;
  // Helpers that were asked for and have not begun.
  const std::shared_ptr<std::atomic<size_t>> posted_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace cairn::engine
