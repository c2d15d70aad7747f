// SPDX-License-Identifier: Apache-2.0
//
// A parallel for: one thread's loop, shared with helpers from an executor, which process some bytes
// while that thread moves others.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/io/executor.h"
#include "cairn/status.h"

namespace cairn::io {

class ParallelFor {
 public:
  // At most `helpers` jobs of the executor at a time; 0: none, then it may be null.
  ParallelFor(Scheduler& scheduler, Executor* executor, size_t helpers)
      : scheduler_(scheduler), executor_(executor), helpers_(helpers) {}

  // Runs `foreground` on this thread, and job(0) to job(count - 1) in any order: on the helpers
  // and, after `foreground`, on this thread. Returns when all have ended: the error of
  // `foreground`, else that of a job. After an error the remaining jobs are skipped. Helpers that
  // find no thread in time are not waited for. std::bad_alloc is kOutOfMemory.
  Status Run(const std::function<Status()>& foreground, size_t count,
             const std::function<Status(size_t)>& job);

 private:
  class Loop;
  Scheduler& scheduler_;
  Executor* const executor_;
  const size_t helpers_;
  // Helpers that were asked for and have not begun.
  const std::shared_ptr<std::atomic<size_t>> posted_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace cairn::io
