// SPDX-License-Identifier: Apache-2.0
#include "base/io/queue_pool.h"

#include <utility>

#include "base/core/check.h"

namespace cairn::io {

QueuePool::QueuePool(FileSystem* files, size_t depth, size_t kept)
    : files_(files), depth_(depth), kept_(kept) {
  queues_.reserve(kept);
}

std::unique_ptr<Queue> QueuePool::Take() {
  {
    const MutexLock lock(&mutex_);
    if (!queues_.empty()) {
      std::unique_ptr<Queue> queue = std::move(queues_.back());
      queues_.pop_back();
      return queue;
    }
  }
  return files_->NewQueue(depth_);
}

void QueuePool::Return(std::unique_ptr<Queue> queue) {
  CAIRN_CHECK(queue->in_flight() == 0);
  const MutexLock lock(&mutex_);
  if (queues_.size() < kept_) queues_.push_back(std::move(queue));
}

// One by one, since there may be no memory for a second list when a store is closed.
void QueuePool::Clear() {
  while (true) {
    std::unique_ptr<Queue> queue;  // Declared before the lock: destroyed without it.
    const MutexLock lock(&mutex_);
    if (queues_.empty()) return;
    queue = std::move(queues_.back());
    queues_.pop_back();
  }
}

QueuePool::Lease::~Lease() {
  while (queue_->in_flight() > 0) queue_->Reap();
  pool_->Return(std::move(queue_));
}

}  // namespace cairn::io
