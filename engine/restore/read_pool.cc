// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/read_pool.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

AlignedBuffer ReadPool::TakeBuffer(uint64_t bytes) {
  const uint64_t wanted = std::max(bytes, kReadWindowBytes);
  {
    std::lock_guard lock(mutex_);
    for (auto it = buffers_.rbegin(); it != buffers_.rend(); ++it) {
      if (it->size() < wanted) continue;
      AlignedBuffer buffer = std::move(*it);
      buffers_.erase(std::prev(it.base()));
      return buffer;
    }
  }
  return AlignedBuffer::TryAllocate(allocator_, wanted, io::kBlockBytes);
}

void ReadPool::ReturnBuffer(AlignedBuffer buffer) {
  if (buffer.size() > 2 * kReadWindowBytes) return;
  std::lock_guard lock(mutex_);
  if (buffers_.size() < kReadWindows) buffers_.push_back(std::move(buffer));
}

std::unique_ptr<io::Queue> ReadPool::TakeQueue() {
  {
    std::lock_guard lock(mutex_);
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
  std::lock_guard lock(mutex_);
  if (queues_.size() < kReadQueuesKept) queues_.push_back(std::move(queue));
}

}  // namespace cairn::engine
