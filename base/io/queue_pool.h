// SPDX-License-Identifier: Apache-2.0
//
// Queues of one depth that are lent, and kept for who asks next: a ring costs some 50 us to make
// and to give back.
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
  // At most `kept` that nobody has at the moment are kept, each a file handle. None is made before
  // somebody asks. The files outlive the pool, which outlives what it lends.
  QueuePool(FileSystem* files, size_t depth, size_t kept);
  QueuePool(const QueuePool&) = delete;
  QueuePool& operator=(const QueuePool&) = delete;

  std::unique_ptr<Queue> Take();
  // REQUIRES: nothing is in flight.
  void Return(std::unique_ptr<Queue> queue);
  // Ends those that are not lent.
  void Clear();

  // A queue for as long as it lives. At its end it waits for what is in flight.
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
