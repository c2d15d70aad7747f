// SPDX-License-Identifier: Apache-2.0
//
// One number of bytes for all buffers and caches of a store. Who needs memory takes it and is
// bounded by itself; one cache lives of what the others leave, and gives up what they ask for.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/core/check.h"

namespace cairn {

class MemoryBudget {
 public:
  // What gives memory up. Called by any thread that takes some, without a lock of the budget.
  class Cache {
   public:
    virtual ~Cache() = default;
    virtual uint64_t bytes() const = 0;
    virtual void Shrink() = 0;  // To what left() says, or its floor.
  };

  explicit MemoryBudget(uint64_t bytes) : bytes_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  // Before others use it; null before the cache goes.
  void SetCache(Cache* cache) { cache_.store(cache, std::memory_order_release); }

  void Take(uint64_t bytes) {
    const uint64_t taken = taken_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    Cache* const cache = cache_.load(std::memory_order_acquire);
    if (cache != nullptr && taken + cache->bytes() > bytes_) cache->Shrink();
  }
  void Return(uint64_t bytes) {
    const uint64_t before = taken_.fetch_sub(bytes, std::memory_order_relaxed);
    CAIRN_CHECK(before >= bytes);
  }

  uint64_t bytes() const { return bytes_; }
  // What nobody but the cache has.
  uint64_t left() const {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    return taken < bytes_ ? bytes_ - taken : 0;
  }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<Cache*> cache_{nullptr};
};

}  // namespace cairn
