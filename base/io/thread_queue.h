// SPDX-License-Identifier: Apache-2.0
//
// Queues without io_uring: blocking calls on a small pool of threads.
//
// The reaping thread helps: it takes the oldest request that is not begun. With one request in
// flight no other thread is needed and none is started; with more, the pool joins in. Pool threads
// are started on first need, and live as long as the pool.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/cond_var.h"
#include "base/io/real_scheduler.h"
#include "base/io/request_list.h"
#include "base/io/world.h"

namespace cairn::io {

class ThreadQueue;

class ThreadPool {
 public:
  static constexpr size_t kMaxThreads = 8;

  ThreadPool();
  ~ThreadPool();  // All queues are destroyed before.

 private:
  friend class ThreadQueue;
  void Work();
  void OfferLocked(ThreadQueue* queue) CAIRN_REQUIRES(mutex_);

  RealScheduler scheduler_;
  const pid_t owner_;
  Mutex mutex_;  // Guards the lists of every queue, too.
  CondVar work_;
  // Queues with requests that wait for a thread.
  ThreadQueue* first_offer_ CAIRN_GUARDED_BY(mutex_) = nullptr;
  size_t idle_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool stopping_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Thread>> threads_ CAIRN_GUARDED_BY(mutex_);
};

class ThreadQueue final : public Queue {
 public:
  ThreadQueue(std::shared_ptr<ThreadPool> pool, size_t depth);
  ~ThreadQueue() override;
  void Submit(Request* request) override;
  Request* Reap() override;
  size_t in_flight() const override { return in_flight_; }

 private:
  friend class ThreadPool;

  const std::shared_ptr<ThreadPool> pool_;
  const size_t depth_;
  size_t in_flight_ = 0;
  RequestList waiting_ CAIRN_GUARDED_BY(pool_->mutex_);
  RequestList done_ CAIRN_GUARDED_BY(pool_->mutex_);
  CondVar reaper_;
  bool offered_ CAIRN_GUARDED_BY(pool_->mutex_) = false;
  ThreadQueue* next_offer_ CAIRN_GUARDED_BY(pool_->mutex_) = nullptr;
};

}  // namespace cairn::io
