// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/read_pool.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

ReadBuffer::~ReadBuffer() {
  if (memory_.empty()) return;
  const uint64_t bytes = memory_.size();
  memory_ = AlignedBuffer();
  pool_->ReturnBuffer(bytes);
}

ReadBuffer ReadPool::TakeBuffer(uint64_t bytes, bool needed) {
  const uint64_t wanted = std::max(bytes, kReadWindowBytes);
  if (bytes_.fetch_add(wanted) + wanted > bytes_max_ && !needed) {
    bytes_.fetch_sub(wanted);
    return {};
  }
  budget_->Take(wanted);
  AlignedBuffer memory = AlignedBuffer::TryAllocate(allocator_, wanted, io::kBlockBytes);
  if (memory.empty()) {
    bytes_.fetch_sub(wanted);
    budget_->Return(wanted);
  }
  return {this, std::move(memory)};
}

void ReadPool::ReturnBuffer(uint64_t bytes) {
  bytes_.fetch_sub(bytes);
  budget_->Return(bytes);
}

std::unique_ptr<io::Queue> ReadPool::TakeQueue() {
  {
    const MutexLock lock(&mutex_);
    if (!queues_.empty()) {
      std::unique_ptr<io::Queue> queue = std::move(queues_.back());
      queues_.pop_back();
      return queue;
    }
  }
  return files_->NewQueue(kReadsInFlightMax);
}

void ReadPool::ReturnQueue(std::unique_ptr<io::Queue> queue) {
  CAIRN_CHECK(queue->in_flight() == 0);
  const MutexLock lock(&mutex_);
  if (queues_.size() < kReadQueuesKept) queues_.push_back(std::move(queue));
}

void ReadPool::Clear() {
  std::vector<std::unique_ptr<io::Queue>> queues;
  const MutexLock lock(&mutex_);
  queues.swap(queues_);  // Before it in scope, so they end when the lock is given back.
}

}  // namespace cairn::engine
