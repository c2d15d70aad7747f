// SPDX-License-Identifier: Apache-2.0
#include "sstable/block_cache.h"

#include "base/codec/hash.h"
#include "base/core/check.h"

namespace cairn::sstable {
namespace {

size_t ChargeOf(const AlignedBuffer& block) { return block.size() + kCacheEntryBytes; }

}  // namespace

BlockCache::BlockCache(size_t capacity_bytes) : shard_capacity_(capacity_bytes / kCacheShards) {}

size_t BlockCache::PlaceHash::operator()(const BlockPlace& place) const {
  return SealHash(place.offset, place.table);
}

BlockCache::Shard& BlockCache::ShardOf(const BlockPlace& place) {
  // The map uses the low bits.
  return shards_[(PlaceHash()(place) >> 32) % kCacheShards];
}

CachedBlock BlockCache::Find(const BlockPlace& place) {
  Shard& shard = ShardOf(place);
  MutexLock lock(&shard.mutex);
  const auto found = shard.places.find(place);
  if (found == shard.places.end()) return nullptr;
  shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
  return found->second->block;
}

CachedBlock BlockCache::Insert(const BlockPlace& place, AlignedBuffer block) {
  CAIRN_CHECK(!block.empty());
  CAIRN_CHECK(place.offset % kTableAlignment == 0);
  const size_t charge = ChargeOf(block);
  auto shared = std::make_shared<const AlignedBuffer>(std::move(block));
  if (charge > shard_capacity_) return shared;
  std::list<Entry> leaving;  // Declared before the lock: freed without it.
  std::list<Entry> coming;   // Spliced in only once all memory is allocated.
  coming.push_front({place, shared});
  Shard& shard = ShardOf(place);
  MutexLock lock(&shard.mutex);
  if (const auto found = shard.places.find(place); found != shard.places.end()) {
    return found->second->block;
  }
  while (shard.bytes + charge > shard_capacity_) {
    CAIRN_CHECK(!shard.entries.empty());
    const auto oldest = std::prev(shard.entries.end());
    CAIRN_CHECK(shard.bytes >= ChargeOf(*oldest->block));
    shard.bytes -= ChargeOf(*oldest->block);
    shard.places.erase(oldest->place);
    leaving.splice(leaving.begin(), shard.entries, oldest);
  }
  shard.places.emplace(place, coming.begin());
  shard.entries.splice(shard.entries.begin(), coming);
  shard.bytes += charge;
  CAIRN_CHECK(shard.bytes <= shard_capacity_);
  CAIRN_CHECK(shard.entries.size() == shard.places.size());
  return shared;
}

size_t BlockCache::bytes() const {
  size_t total = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(&shard.mutex);
    total += shard.bytes;
  }
  return total;
}

}  // namespace cairn::sstable
