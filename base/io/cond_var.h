// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/core/mutex.h"

namespace cairn::io {

// For threads of the operating system only. Code that must run in simulation, too, waits on words
// (Scheduler).
class CondVar {
 public:
  // Releases the mutex meanwhile. May return without a notification.
  void Wait(Mutex* mutex) CAIRN_REQUIRES(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace cairn::io
