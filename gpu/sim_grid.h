// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel on the CPU. Every thread of a block is a fiber. At every operation of a warp or a
// block the next lane is drawn from a seed, so that a missing barrier shows as another result, and
// under ThreadSanitizer as a race: for it only SyncWarp and SyncBlock order the lanes. Shared
// memory is heap memory of the size asked for, full of rubbish; AddressSanitizer detects accesses
// beyond it.
//
// A kernel that cannot go on is a programmer's error: lanes of a warp that meet in different
// operations, lanes that leave while others wait for them. The process ends with a list of where
// each lane of the block is.
//
// A grid is used by one thread at a time. It keeps its stacks for the next run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/core/check.h"
#include "base/io/fiber.h"
#include "cairn/status.h"
#include "gpu/lane.h"

namespace cairn::gpu {

class SimGrid;

class SimLane {
 public:
  using Where = internal::CodeLocation;

  uint32_t thread() const { return thread_; }
  uint32_t threads() const;
  uint32_t block() const;
  uint32_t lane() const { return thread_ % kWarp; }
  uint32_t warp() const { return thread_ / kWarp; }
  template <typename T>
  T* Shared(uint32_t offset) const;

  void SyncWarp(Where where = Where::Current()) const { Meet(kSyncWarp, 0, 0, where); }
  void SyncBlock(Where where = Where::Current()) const { Meet(kSyncBlock, 0, 0, where); }
  uint32_t Ballot(bool vote, Where where = Where::Current()) const {
    return Ballots(Votes<1>{{vote}}, where).of[0];
  }
  template <uint32_t kCount>
  Votes<kCount> Ballots(const Votes<kCount>& votes, Where where = Where::Current()) const {
    static_assert(kCount <= kMaxVotes);
    uint64_t mine = 0;
    for (uint32_t i = 0; i < kCount; ++i) mine |= uint64_t{votes.of[i] != 0} << i;
    Meet(kBallot, mine, 0, where);
    Votes<kCount> result;
    for (uint32_t i = 0; i < kCount; ++i) result.of[i] = Result(i);
    return result;
  }
  template <typename T>
  T Shuffle(T value, uint32_t from, Where where = Where::Current()) const {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    Meet(kShuffle, bits, from % kWarp, where);
    bits = Given();
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }

  uint32_t AtomicOr(uint32_t* at, uint32_t bits) const {
    return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
  }
  uint32_t AtomicCas(uint32_t* at, uint32_t expected, uint32_t value) const {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
  }
  uint32_t AtomicAdd(uint32_t* at, uint32_t value) const {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
  }
  uint64_t AtomicMin(uint64_t* at, uint64_t value) const {
    uint64_t is = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < is && !__atomic_compare_exchange_n(at, &is, value, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
    }
    return is;
  }

  void Flag(uint8_t* at) const { __atomic_store_n(at, uint8_t{1}, __ATOMIC_RELAXED); }
  template <typename T>
  T Load(const void* at) const {
    CAIRN_CHECK(reinterpret_cast<uintptr_t>(at) % alignof(T) == 0);
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  template <typename T>
  void Store(void* at, const T& value) const {
    CAIRN_CHECK(reinterpret_cast<uintptr_t>(at) % alignof(T) == 0);
    std::memcpy(at, &value, sizeof(T));
  }
  uint32_t PopCount(uint32_t x) const { return static_cast<uint32_t>(__builtin_popcount(x)); }
  uint32_t BitWidth(uint32_t x) const {
    return x == 0 ? 0 : 32 - static_cast<uint32_t>(__builtin_clz(x));
  }

 private:
  friend class SimGrid;
  enum Kind : uint8_t { kRuns, kSyncWarp, kSyncBlock, kBallot, kShuffle, kOver };
  static constexpr uint32_t kMaxVotes = 4;

  // Returns when all lanes have come for which this one has to wait.
  void Meet(Kind kind, uint64_t value, uint32_t from, const Where& where) const;
  uint32_t Result(uint32_t vote) const;  // The ballot just held.
  uint64_t Given() const;                // By the shuffle just made.

  SimGrid* grid_ = nullptr;
  uint32_t thread_ = 0;
};

class SimGrid {
 public:
  explicit SimGrid(uint64_t seed);
  ~SimGrid();
  SimGrid(const SimGrid&) = delete;
  SimGrid& operator=(const SimGrid&) = delete;

  // All later choices follow from this seed.
  void Seed(uint64_t seed);

  // Calls body(lane) for every thread; blocks follow each other in a drawn order.
  void Run(const LaunchShape& shape, std::function<void(const SimLane&)> body);

  // Switches between lanes so far.
  uint64_t switches() const { return switches_; }

 private:
  friend class SimLane;
  struct Task;
  struct Warp {
    uint32_t come = 0;
    SimLane::Kind kind = SimLane::kRuns;
  };

  static void Entry(void* task);
  void RunBlock(uint32_t block);
  void Arrive(Task* task, SimLane::Kind kind);
  void Release(SimLane::Kind kind, uint32_t first, uint32_t end);
  void GoOn(io::Fiber* from);
  uint32_t Draw(uint32_t bound);
  [[noreturn]] void Die(const char* what);

  LaunchShape shape_;
  std::function<void(const SimLane&)> body_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<std::byte> shared_;
  // Plain pointers into memory of kMaxThreads: the sanitizer must not see the lanes' accesses.
  Task** ready_;
  Warp* warps_;
  // Addresses that stand for the syncs of a warp, last for those of the block: two each, in turn,
  // since a lane may come to the next sync before another has left this one.
  char* order_;
  struct Tables;
  const std::unique_ptr<Tables> tables_;
  uint32_t ready_count_ = 0;
  uint32_t block_ = 0, block_come_ = 0, over_ = 0;
  io::Fiber* main_ = nullptr;
  bool is_ending_ = false;
  uint64_t state_ = 0;  // The random generator's state.
  uint64_t switches_ = 0;
};

inline uint32_t SimLane::threads() const { return grid_->shape_.threads; }
inline uint32_t SimLane::block() const { return grid_->block_; }
template <typename T>
T* SimLane::Shared(uint32_t offset) const {
  return reinterpret_cast<T*>(grid_->shared_.data() + offset);
}

}  // namespace cairn::gpu
