// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/read_pool.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

ReadBuffer::~ReadBuffer() {
  if (!memory_.empty()) pool_->ReturnBuffer(std::move(memory_));
}

ReadPool::~ReadPool() { budget_->Return(bytes_.load()); }

ReadBuffer ReadPool::TakeBuffer(uint64_t bytes, bool needed) {
  const uint64_t wanted = std::max(bytes, kReadWindowBytes);
  {
    const MutexLock lock(&mutex_);
    for (auto it = buffers_.rbegin(); it != buffers_.rend(); ++it) {
      if (it->size() < wanted) continue;
      ReadBuffer buffer(this, std::move(*it));
      buffers_.erase(std::prev(it.base()));
      return buffer;
    }
  }
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

void ReadPool::ReturnBuffer(AlignedBuffer memory) {
  const uint64_t bytes = memory.size();
  if (bytes <= 2 * kReadWindowBytes && bytes_.load() <= bytes_max_) {
    const MutexLock lock(&mutex_);
    if (buffers_.size() < kReadWindows) {
      buffers_.push_back(std::move(memory));
      return;
    }
  }
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
  std::vector<AlignedBuffer> buffers;
  std::vector<std::unique_ptr<io::Queue>> queues;
  {
    const MutexLock lock(&mutex_);
    buffers.swap(buffers_);
    queues.swap(queues_);
  }
  for (const AlignedBuffer& buffer : buffers) {
    bytes_.fetch_sub(buffer.size());
    budget_->Return(buffer.size());
  }
}

}  // namespace cairn::engine
