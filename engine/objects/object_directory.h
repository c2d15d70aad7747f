// SPDX-License-Identifier: Apache-2.0
//
// The objects that exist, in memory: {64 bits of a hash of namespace and key, branch} for each,
// updated by commits, so that Exists need not ask the index. It is derived: empty at an opening,
// then filled from the index in the background, and bounded: when it is full, a new entry replaces
// another. A key that it does not have is *unknown*, unless it has every object: then the key does
// not exist.
//
// It also has the mark of Touch, which is stored nowhere else.
//
// Thread-safe. Lock order: the commit lock, then its own, which is held for a few microseconds.
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
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

class ObjectDirectory final : public CommitObserver {
 public:
  enum class Answer : uint8_t { kAbsent, kPresent, kUnknown };
  struct Figures {
    uint64_t entries = 0, bytes = 0;
    bool whole = false;
  };

  // The tree whose commits it observes; both outlive this.
  ObjectDirectory(Tree* tree, MemoryBudget* budget, uint64_t bytes_max)
      : tree_(*tree), budget_(*budget), bytes_max_(bytes_max) {}
  ~ObjectDirectory() override { Close(); }
  ObjectDirectory(const ObjectDirectory&) = delete;
  ObjectDirectory& operator=(const ObjectDirectory&) = delete;

  // --- Filling, by one thread. From BeginFill on commits update it; older objects are Inserted.
  void BeginFill(uint64_t seed);
  void Insert(const Head& head);
  void EndFill(bool all);  // REQUIRES: the commit lock.
  // It knows nothing from here on, and learns nothing: the tree was replaced.
  void Close();

  // --- Look-ups. `ns` is the caller's name of the namespace.
  void Look(std::string_view ns, std::span<const std::string_view> keys,
            std::span<Answer> answers) const;
  void Touch(std::string_view ns, std::span<const std::string_view> keys);
  // Whether it was touched since the last call for it.
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
    size_t hand = 0;  // Where the next victim is looked for.
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
  // At least this many objects have no place here. A drop of one decrements it; not while it is
  // filled, since it is unknown then whether the object was counted.
  uint64_t left_out_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::array<Shard, kDirectoryShards> shards_ CAIRN_GUARDED_BY(mutex_);
  uint64_t entries_ CAIRN_GUARDED_BY(mutex_) = 0, bytes_ CAIRN_GUARDED_BY(mutex_) = 0;
  // Branches that are dropped while it is filled: the filler may have read them before.
  std::unordered_set<uint64_t> dropped_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
