// SPDX-License-Identifier: Apache-2.0
//
// Buffers and queues of restores. Buffers come from the allocator, which keeps some for the next
// restore, and are bounded. Queues are kept here: making one costs half of a small restore.
//
// Thread-safe; no lock is held while something is made.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/memory_budget.h"
#include "base/io/queue_pool.h"
#include "base/io/world.h"
#include "cairn/allocator.h"
#include "engine/config/constants.h"
#include "engine/config/memory_line.h"

namespace cairn::engine {

class ReadPool;

// Memory lent by a ReadPool, which outlives it; aligned to blocks.
class ReadBuffer {
 public:
  ReadBuffer() = default;
  ReadBuffer(ReadPool* pool, AlignedBuffer memory) : pool_(pool), memory_(std::move(memory)) {}
  ReadBuffer(ReadBuffer&& other) noexcept { *this = std::move(other); }
  ReadBuffer& operator=(ReadBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~ReadBuffer();
  bool empty() const { return memory_.empty(); }
  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  std::span<std::byte> span() const { return memory_.span(); }

 private:
  ReadPool* pool_ = nullptr;
  AlignedBuffer memory_;
};

class ReadPool {
 public:
  // `bytes_max` bounds the lent buffers, except those that are needed: line() bounds these, to the
  // same amount.
  ReadPool(const io::World& world, const Allocator& allocator, uint64_t bytes_max,
           MemoryBudget* budget)
      : files_(world.files),
        allocator_(allocator),
        bytes_max_(bytes_max),
        budget_(budget),
        line_(*world.scheduler, bytes_max, nullptr),
        queues_(world.files.get(), kReadsInFlightMax, kReadQueuesKept) {}
  ~ReadPool() { CAIRN_CHECK(bytes_.load() == 0); }

  // A share of it is taken before the buffer that is needed, and returned after it.
  MemoryLine& line() { return line_; }

  // `bytes` or more; empty when memory is short. If not `needed`, also when the bound is reached.
  ReadBuffer TakeBuffer(uint64_t bytes, bool needed = true);
  // Each for kReadsInFlightMax requests.
  io::QueuePool& queues() { return queues_; }

 private:
  friend class ReadBuffer;
  void ReturnBuffer(uint64_t bytes);

  const std::shared_ptr<io::FileSystem> files_;
  const Allocator allocator_;
  const uint64_t bytes_max_;
  MemoryBudget* const budget_;
  MemoryLine line_;
  std::atomic<uint64_t> bytes_{0};  // Lent.
  io::QueuePool queues_;
};

}  // namespace cairn::engine
