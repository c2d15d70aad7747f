// SPDX-License-Identifier: Apache-2.0
//
// Verified blocks of tables in memory, bounded by bytes, LRU. Shared by all tables of a store, of
// any kind.
//
// The bound holds for what the cache keeps. A block that left it lives on while a reader holds it;
// readers hold at most two blocks for each table that a lookup or scan has open.
//
// Thread-safe: a short lock for each of kCacheShards parts, never held across I/O. Two threads that
// miss the same block both read it; one copy is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/core/aligned_buffer.h"
#include "base/core/mutex.h"
#include "sstable/constants.h"

namespace cairn::sstable {

using CachedBlock = std::shared_ptr<const AlignedBuffer>;

// File numbers are never reused, so entries of a deleted table are harmless: they age.
struct BlockPlace {
  uint64_t table = 0;
  uint64_t offset = 0;
  bool operator==(const BlockPlace&) const = default;
};

class BlockCache {
 public:
  // Each part gets an equal share of `capacity_bytes`; a block larger than that is never kept.
  explicit BlockCache(size_t capacity_bytes);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  CachedBlock Find(const BlockPlace& place);  // Null when it is not there.
  // Returns the block to use: this one, or the one that was cached already.
  CachedBlock Insert(const BlockPlace& place, AlignedBuffer block);

  // Blocks and the overhead of keeping them.
  size_t bytes() const;

 private:
  struct Entry {
    BlockPlace place;
    CachedBlock block;
  };
  struct PlaceHash {
    size_t operator()(const BlockPlace& place) const;
  };
  struct Shard {
    mutable Mutex mutex;
    size_t bytes CAIRN_GUARDED_BY(mutex) = 0;
    std::list<Entry> entries CAIRN_GUARDED_BY(mutex);  // Most recently used first.
    std::unordered_map<BlockPlace, std::list<Entry>::iterator, PlaceHash> places
        CAIRN_GUARDED_BY(mutex);
  };
  Shard& ShardOf(const BlockPlace& place);

  const size_t shard_capacity_;
  std::array<Shard, kCacheShards> shards_;
};

}  // namespace cairn::sstable
