// SPDX-License-Identifier: Apache-2.0
//
// Lends queues of one depth, and keeps returned ones for later: making and destroying a ring costs
// about 50 us.
//
// Thread-safe; no lock is held while a queue is made or ended.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::io {

class QueuePool {
 public:
  // At most `kept` idle queues are kept, each a file handle. None is made before the first call.
  // The files outlive the pool, which outlives the queues that it lends.
  QueuePool(FileSystem* files, size_t depth, size_t kept);
  QueuePool(const QueuePool&) = delete;
  QueuePool& operator=(const QueuePool&) = delete;

  std::unique_ptr<Queue> Take();
  // REQUIRES: nothing is in flight.
  void Return(std::unique_ptr<Queue> queue);
  // Destroys the queues that are not lent.
  void Clear();

  // Borrows a queue. Its destructor waits for requests in flight.
  class Lease {
   public:
    explicit Lease(QueuePool* pool) : pool_(pool), queue_(pool->Take()) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Queue* operator->() const { return queue_.get(); }

   private:
    QueuePool* const pool_;
    std::unique_ptr<Queue> queue_;
  };

 private:
  FileSystem* const files_;
  const size_t depth_;
  const size_t kept_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Queue>> queues_ CAIRN_GUARDED_BY(mutex_);  // Has room for all.
};

}  // namespace cairn::io
