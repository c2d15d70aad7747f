// SPDX-License-Identifier: Apache-2.0
//
// Work that needs much memory queues for it, first come, first served, until there is enough. If
// nobody holds any, the first in line is admitted however much it asks for.
//
// Thread-safe. Take waits, so no lock may be held around it; nor may the owner of a share take
// another of the same line.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "base/core/memory_budget.h"
#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::engine {

class MemoryLine {
 public:
  // The memory that was taken; gives it back when it is destroyed.
  class Share {
   public:
    Share() = default;
    Share(MemoryLine* line, uint64_t bytes) : line_(line), bytes_(bytes) {}
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept {
      std::swap(line_, other.line_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (line_ != nullptr) line_->Return(bytes_);
    }

   private:
    MemoryLine* line_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // At most `bytes_max` is lent at a time. `budget` is charged for it; null where the memory itself
  // is already counted.
  MemoryLine(io::Scheduler& scheduler, uint64_t bytes_max, MemoryBudget* budget)
      : scheduler_(scheduler), bytes_max_(bytes_max), budget_(budget) {}
  MemoryLine(const MemoryLine&) = delete;
  MemoryLine& operator=(const MemoryLine&) = delete;

  // Asks `go_on` from time to time while it waits; anything but Ok ends the wait and is returned.
  Result<Share> Take(uint64_t bytes, const std::function<Status()>& go_on);
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  bool Fits(uint64_t bytes) const CAIRN_REQUIRES(mutex_) {
    return taken_ == 0 || taken_ + bytes <= bytes_max_;
  }
  Share Give(uint64_t bytes) CAIRN_REQUIRES(mutex_);
  void Return(uint64_t bytes);
  void Changed();

  io::Scheduler& scheduler_;
  const uint64_t bytes_max_;
  MemoryBudget* const budget_;
  std::atomic<uint32_t> word_{0};  // Changes when a share is given back, or the line gets shorter.

  Mutex mutex_;
  uint64_t taken_ CAIRN_GUARDED_BY(mutex_) = 0;
  uint64_t came_ CAIRN_GUARDED_BY(mutex_) = 0;          // Each caller gets a number.
  std::deque<uint64_t> line_ CAIRN_GUARDED_BY(mutex_);  // Numbers of those that wait.
};

}  // namespace cairn::engine
