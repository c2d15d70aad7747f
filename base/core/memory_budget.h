// SPDX-License-Identifier: Apache-2.0
//
// One number of bytes for all buffers and caches of a store. A component that needs memory takes it
// and limits itself. Elastic caches use the remainder and shrink on demand.
//
// Several caches share the remainder by weight. Each is sure of its share, and may use what the
// others leave of theirs until they want it:
//
//   left(cache) = max(its share of the remainder, the remainder - what the other caches hold)
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/core/check.h"

namespace cairn {

class MemoryBudget {
 public:
  // A cache that can give memory up. Called by any thread that takes some, without a lock of the
  // budget.
  class Cache {
   public:
    virtual ~Cache() = default;
    virtual uint64_t bytes() const = 0;
    virtual uint64_t weight() const = 0;  // Never 0, and never changes.
    virtual void Shrink() = 0;            // To left(this), or its floor.
  };
  static constexpr size_t kCachesMax = 4;

  explicit MemoryBudget(uint64_t bytes) : bytes_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  // Call before other threads use the cache, and before it is destroyed.
  void AddCache(Cache* cache) { Replace(nullptr, cache); }
  void RemoveCache(Cache* cache) { Replace(cache, nullptr); }

  void Take(uint64_t bytes) {
    const uint64_t taken = taken_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (taken + BytesOfOthers(nullptr) > bytes_) ShrinkOthers(nullptr);
  }
  void Return(uint64_t bytes) {
    const uint64_t before = taken_.fetch_sub(bytes, std::memory_order_relaxed);
    CAIRN_CHECK(before >= bytes);
  }
  // Called by a cache that has grown, without a lock of its own: if necessary the others give up
  // what they hold beyond their shares.
  void Grew(const Cache* cache) {
    const uint64_t others = BytesOfOthers(cache);
    if (others != 0 && others + cache->bytes() > left()) ShrinkOthers(cache);
  }

  uint64_t bytes() const { return bytes_; }
  // What components took, and what caches hold.
  uint64_t used() const { return taken_.load(std::memory_order_relaxed) + BytesOfOthers(nullptr); }
  // The remainder: bytes that only caches may have.
  uint64_t left() const {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    return taken < bytes_ ? bytes_ - taken : 0;
  }
  // How much of it this cache may hold.
  uint64_t left(const Cache* cache) const {
    const uint64_t all = left();
    uint64_t others = 0, weights = cache->weight();
    ForOthers(cache, [&](const Cache& other) {
      others += other.bytes();
      weights += other.weight();
    });
    const uint64_t unused = others < all ? all - others : 0;
    const uint64_t share = all / weights * cache->weight();
    return share < unused ? unused : share;
  }

 private:
  template <typename Visit>
  void ForOthers(const Cache* cache, const Visit& visit) const {
    for (const std::atomic<Cache*>& slot : caches_) {
      Cache* const other = slot.load(std::memory_order_acquire);
      if (other != nullptr && other != cache) visit(*other);
    }
  }
  uint64_t BytesOfOthers(const Cache* cache) const {
    uint64_t bytes = 0;
    ForOthers(cache, [&](const Cache& other) { bytes += other.bytes(); });
    return bytes;
  }
  void ShrinkOthers(const Cache* cache) const {
    ForOthers(cache, [](Cache& other) { other.Shrink(); });
  }
  void Replace(Cache* before, Cache* after) {
    for (std::atomic<Cache*>& slot : caches_) {
      Cache* found = before;
      if (slot.compare_exchange_strong(found, after, std::memory_order_acq_rel)) return;
    }
    CAIRN_CHECK(false);  // One too many, or one that was never added.
  }

  const uint64_t bytes_;
  std::atomic<uint64_t> taken_{0};
  std::array<std::atomic<Cache*>, kCachesMax> caches_{};
};

}  // namespace cairn
