// SPDX-License-Identifier: Apache-2.0
//
// Frames of snapshot tables in memory, for the next restore of the same content.
//
// They are kept unpacked, as they are scattered: unpacking is two thirds of the cost of a restore
// from memory (3 GB/s a core against 10), and packed frames would only be a third smaller. A frame
// enters after its checksum held and it was decoded, so a restore that finds it need not check
// again. base/core/s3_fifo.h says which frames stay.
//
// KV enters when it is read again: at first sight it leaves only its name. Most of it is restored
// once, after a restart, and lives in the engine from there on; unpacking it into memory that was
// not touched lately takes half of the processor time of such a restore. Token ids are small, and
// searches compare them again and again: they enter at first sight. What was prefetched stays.
//
// Frames lie in slabs (base/core/slab_arena.h): a new frame takes the place of one that left.
//
// Its memory is what the budget leaves, at least `floor_bytes`. Frames with their entries and names
// are charged. Free places of slabs are not: up to MemoryParts::slab_kept is set aside for them;
// beyond that they are gaps between frames of many sizes.
//
// Thread-safe; a short lock for each of kPageCacheShards parts, none held while a frame is read,
// unpacked or freed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/core/aligned_buffer.h"
#include "base/core/memory_budget.h"
#include "base/core/s3_fifo.h"
#include "base/core/slab_arena.h"
#include "engine/config/constants.h"
#include "engine/config/memory_parts.h"

namespace cairn::engine {

// A frame, or all frames of a small fragment, one behind the other; or a slice of a record
// (page_names.h). Table numbers are never reused, so a name is unique; entries of deleted tables
// are not asked for any more and get evicted.
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
  using Admission = CacheAdmission;

  PageCache(MemoryBudget* budget, const Allocator& allocator, const MemoryParts& memory);
  ~PageCache() override;
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // Null when it is not there. `seal` is the checksum of the fragment's entries. If it differs from
  // that of Insert a table number was given twice, which ends the process.
  Page Find(const PageName& name, uint64_t seal);
  bool Contains(const PageName& name) const { return frames_.Contains(name); }
  // Whether a frame that is about to be unpacked should be kept, and where. `at_once`: also at
  // first sight.
  Admission Admit(const PageName& name, uint64_t bytes, bool at_once);
  // Memory for it; empty when there is none.
  AlignedBuffer Allocate(uint64_t bytes);
  void Insert(const PageName& name, uint64_t seal, AlignedBuffer bytes, Admission admission);

  void Clear();
  // Gives back slabs that were empty since the last call.
  void Trim() { slabs_.Trim(); }
  uint64_t capacity() const { return std::max(floor_bytes_, budget_->left(this)); }
  uint64_t kept_bytes() const { return slabs_.kept_bytes(); }  // Trim may free them.

  // --- MemoryBudget::Cache
  uint64_t bytes() const override { return frames_.bytes(); }
  uint64_t weight() const override { return 1; }  // Shares of equal size.
  void Shrink() override { frames_.ShrinkTo(capacity()); }

 private:
  struct Kept {
    Page page{};
    uint64_t seal = 0;
  };
  struct NameHash {
    size_t operator()(const PageName& name) const;
  };
  using Frames = S3Fifo<PageName, NameHash, Kept, kPageCacheShards>;

  MemoryBudget* const budget_;
  const uint64_t floor_bytes_;
  SlabArena slabs_;
  Frames frames_;
};

}  // namespace cairn::engine
