// SPDX-License-Identifier: Apache-2.0
//
// Which objects there are, in memory: {64 bits of a hash of namespace and key, branch} of each,
// kept by what is committed, so that Exists asks no index. It is derived: empty at an opening,
// filled from the index in the background meanwhile, and bounded: when it is full, what comes takes
// the place of another. What it does not know is *unknown*; as long as it knows all, it is not
// there.
//
// It also has the mark of Touch, which is nowhere else.
//
// Thread-safe. Lock order: the commit lock, then its own, which is held for some microseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/core/memory_budget.h"
#include "base/core/mutation.h"
#include "base/core/mutex.h"
#include "engine/commit/commit_observer.h"
#include "engine/objects/constants.h"
#include "engine/tree/tree.h"

namespace cairn::engine {

class ObjectDirectory final : public CommitObserver {
 public:
  enum class Answer : uint8_t { kAbsent, kPresent, kUnknown };
  struct Figures {
    uint64_t entries = 0, bytes = 0;
    bool whole = false;
  };

  // The tree whose changes it is told of; both outlive this.
  ObjectDirectory(Tree* tree, MemoryBudget* budget, uint64_t bytes_max)
      : tree_(*tree), budget_(*budget), bytes_max_(bytes_max) {}
  ~ObjectDirectory() override { Close(); }
  ObjectDirectory(const ObjectDirectory&) = delete;
  ObjectDirectory& operator=(const ObjectDirectory&) = delete;

  // --- Filling, by one thread. From BeginFill on it is kept; what was there before is Inserted.
  void BeginFill(uint64_t seed);
  void Insert(const Head& head);
  void EndFill(bool all);  // REQUIRES: the commit lock.
  // It knows nothing from here on, and learns nothing: the tree is another.
  void Close();

  // --- Asking. `ns` is the caller's name of it.
  void Look(std::string_view ns, std::span<const std::string_view> keys,
            std::span<Answer> answers) const;
  void Touch(std::string_view ns, std::span<const std::string_view> keys);
  // Whether it was touched since this was asked of it last.
  bool TakeTouched(const Head& head);
  Figures figures() const;

  // --- CommitObserver, in sequence: under the commit lock.
  void OnCommitted(const CommittedOp& op) noexcept override;

 private:
  struct Entry {
    uint64_t hash = 0;
    uint64_t branch = 0;  // With kTouched; 0: none.
  };
  struct Shard {
    std::vector<Entry> slots;
    size_t used = 0;
    size_t hand = 0;  // Where room is made next.
  };
  enum class State : uint8_t { kClosed, kFilling, kFilled };
  static constexpr uint64_t kTouched = uint64_t{1} << 63;

  static size_t HomeOf(uint64_t hash, size_t slots) {
    return static_cast<size_t>((hash & UINT32_MAX) * slots >> 32);
  }
  static size_t ShardOf(uint64_t hash) { return hash >> 56; }
  uint64_t SeedOf(std::string_view ns) const;
  static uint64_t HashOf(std::string_view key, uint64_t ns_seed);
  bool HashOf(const Head& head, uint64_t* hash) const;

  // Its place in its part, or SIZE_MAX. Branch 0: any.
  size_t FindLocked(uint64_t hash, uint64_t branch) const CAIRN_REQUIRES(mutex_);
  void InsertLocked(uint64_t hash, uint64_t branch) CAIRN_REQUIRES(mutex_);
  bool GrowLocked(Shard* shard) CAIRN_REQUIRES(mutex_);
  void EraseLocked(Shard* shard, size_t at) CAIRN_REQUIRES(mutex_);
  static size_t VictimOf(Shard* shard);  // REQUIRES: most of its places are taken.
  void EndFillLocked(bool all) CAIRN_REQUIRES(mutex_);
  void CloseLocked() CAIRN_REQUIRES(mutex_);
  bool KnowsAllLocked() const CAIRN_REQUIRES(mutex_) {
    return state_ == State::kFilled && !unread_ && (left_out_ == 0 || !CAIRN_KEPT(kObjectLeftOut));
  }
  void Add(const Head& head);
  void Remove(const Head& head, bool dropped);

  Tree& tree_;
  MemoryBudget& budget_;
  const uint64_t bytes_max_;
  std::atomic<uint64_t> seed_{0};

  mutable Mutex mutex_;
  State state_ CAIRN_GUARDED_BY(mutex_) = State::kClosed;
  bool unread_ CAIRN_GUARDED_BY(mutex_) = false;  // It was not filled to the end.
  // At least so many have no place here. Each is counted out again when it is dropped; those that
  // are dropped while it is filled stay counted, since nobody knows whether they were.
  uint64_t left_out_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::array<Shard, kDirectoryShards> shards_ CAIRN_GUARDED_BY(mutex_);
  uint64_t entries_ CAIRN_GUARDED_BY(mutex_) = 0, bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  // Branches that are dropped while it is filled: the filler may have read them before.
  std::unordered_set<uint64_t> dropped_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
