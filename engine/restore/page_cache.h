// SPDX-License-Identifier: Apache-2.0
//
// Frames of snapshot tables in memory, for whoever restores the same again.
//
// They are kept unpacked, as they are scattered: unpacking is two thirds of what a restore from
// memory would cost (3 GB/s a core against 10), and packed ones would be a third smaller only. A
// frame enters once its checksum held and it was decoded; who finds it need not look again.
//
// Which stay (S3-FIFO, as in Yang and others, SOSP 2023): what comes for the first time goes into a
// queue of an eighth of the memory. Who leaves that queue without having been asked for again
// leaves its name behind; who comes back while the name is known goes to the rest of the memory,
// where one leaves that was not asked for since its last turn. So what is read once passes through
// an eighth and the rest stays. What a restore larger than that eighth reads leaves names alone:
// it would only push itself out, and is kept when it is read again.
//
// Memory is what the budget leaves, and `floor_bytes` at least: charged are frames with their
// entries, and names. Thread-safe; a short lock for each of kPageCacheShards parts, none held while
// something is read, unpacked or freed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/core/aligned_buffer.h"
#include "base/core/memory_budget.h"
#include "base/core/mutex.h"
#include "engine/constants.h"

namespace cairn::engine {

// A frame, or all frames of a small fragment, one behind the other. Numbers of tables are never
// used twice, so nothing else has the same name; entries of deleted tables are not asked for and
// leave.
struct PageName {
  uint64_t table = 0;
  uint64_t fragment = 0;  // Its offset in the file.
  uint64_t frame = 0;     // Index within the fragment, or kAllFrames.
  static constexpr uint64_t kAllFrames = UINT64_MAX;
  bool operator==(const PageName&) const = default;
};

class PageCache final : public MemoryBudget::Cache {
 public:
  using Page = std::shared_ptr<const AlignedBuffer>;
  enum class Admission : uint8_t { kNo, kNew, kAgain };

  PageCache(MemoryBudget* budget, const Allocator& allocator, uint64_t floor_bytes);
  ~PageCache() override;
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // Null when it is not there. `seal` is the checksum of the fragment's entries: another one than
  // that of Insert would mean a number that was given twice, which ends the process.
  Page Find(const PageName& name, uint64_t seal);
  bool Contains(const PageName& name) const;
  // Whether a frame that is about to be unpacked shall be kept, and where. `large`: it is one of
  // more than passing_bytes().
  Admission Admit(const PageName& name, uint64_t bytes, bool large);
  // Memory for it; empty when there is none.
  AlignedBuffer Allocate(uint64_t bytes);
  void Insert(const PageName& name, uint64_t seal, AlignedBuffer bytes, Admission admission);

  void Clear();
  // What a restore may bring in at first sight.
  uint64_t passing_bytes() const { return capacity() / kPassingShare; }
  uint64_t capacity() const { return std::max(floor_bytes_, budget_->left(this)); }

  // --- MemoryBudget::Cache
  uint64_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }
  uint64_t weight() const override { return 1; }  // Shares of equal size.
  void Shrink() override;

 private:
  struct Entry {
    PageName name{};
    Page page{};  // Null: a name alone.
    uint64_t seal = 0;
    uint64_t charge = 0;
    uint8_t uses = 0;  // Since its last turn, up to kUsesMax.
    bool staying = false;
  };
  using List = std::list<Entry>;
  struct NameHash {
    size_t operator()(const PageName& name) const;
  };
  struct Shard {
    mutable Mutex mutex;
    // Newest first.
    List passing CAIRN_GUARDED_BY(mutex), staying CAIRN_GUARDED_BY(mutex),
        names CAIRN_GUARDED_BY(mutex);
    uint64_t passing_bytes CAIRN_GUARDED_BY(mutex) = 0, staying_bytes CAIRN_GUARDED_BY(mutex) = 0;
    std::unordered_map<PageName, List::iterator, NameHash> entries CAIRN_GUARDED_BY(mutex);
    uint64_t bytes() const CAIRN_REQUIRES(mutex);
  };
  static constexpr uint8_t kUsesMax = 3;
  static constexpr uint64_t kPassingShare = 8;

  Shard& ShardOf(const PageName& name);
  uint64_t ShardCapacity() const { return capacity() / kPageCacheShards; }
  // Frees room for `bytes`; what leaves is moved to `leaving`, to be freed without the lock.
  void MakeRoom(Shard* shard, uint64_t bytes, List* leaving) CAIRN_REQUIRES(shard->mutex);
  void EvictPassing(Shard* shard, List* leaving) CAIRN_REQUIRES(shard->mutex);
  void EvictStaying(Shard* shard, List* leaving) CAIRN_REQUIRES(shard->mutex);
  void ForgetNames(Shard* shard, uint64_t count_max, List* leaving) CAIRN_REQUIRES(shard->mutex);
  template <typename Change>
  void Changing(Shard* shard, const Change& change);

  MemoryBudget* const budget_;
  const Allocator allocator_;
  const uint64_t floor_bytes_;
  std::atomic<uint64_t> bytes_{0};
  mutable std::array<Shard, kPageCacheShards> shards_;
};

}  // namespace cairn::engine
