// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/page_cache.h"

#include <algorithm>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"

namespace cairn::engine {

PageCache::PageCache(MemoryBudget* budget, const Allocator& allocator, uint64_t floor_bytes)
    : budget_(budget), allocator_(allocator), floor_bytes_(floor_bytes) {
  budget_->AddCache(this);
}

PageCache::~PageCache() { budget_->RemoveCache(this); }

size_t PageCache::NameHash::operator()(const PageName& name) const {
  return SealHash(name.fragment + name.frame, name.table);
}

uint64_t PageCache::Shard::bytes() const {
  return passing_bytes + staying_bytes + names.size() * kPageNameBytes;
}

PageCache::Shard& PageCache::ShardOf(const PageName& name) {
  // The map uses the low bits.
  return shards_[(NameHash()(name) >> 32) % kPageCacheShards];
}

// Runs `change` under the lock of the shard and keeps the sum right.
template <typename Change>
void PageCache::Changing(Shard* shard, const Change& change) {
  List leaving;  // Freed without the lock.
  const MutexLock lock(&shard->mutex);
  const uint64_t before = shard->bytes();
  change(&leaving);
  bytes_.fetch_add(shard->bytes() - before, std::memory_order_relaxed);  // Or less: it wraps.
}

PageCache::Page PageCache::Find(const PageName& name, uint64_t seal) {
  Shard& shard = ShardOf(name);
  const MutexLock lock(&shard.mutex);
  const auto found = shard.entries.find(name);
  if (found == shard.entries.end() || found->second->page == nullptr) return nullptr;
  Entry& entry = *found->second;
  CAIRN_CHECK(entry.seal == seal);
  entry.uses = std::min<uint8_t>(entry.uses + 1, kUsesMax);
  return entry.page;
}

bool PageCache::Contains(const PageName& name) const {
  const Shard& shard = const_cast<PageCache*>(this)->ShardOf(name);
  const MutexLock lock(&shard.mutex);
  const auto found = shard.entries.find(name);
  return found != shard.entries.end() && found->second->page != nullptr;
}

PageCache::Admission PageCache::Admit(const PageName& name, uint64_t bytes, bool large) {
  if (bytes + kPageEntryBytes > ShardCapacity() / 2) return Admission::kNo;
  Shard& shard = ShardOf(name);
  Admission admission = large ? Admission::kNo : Admission::kNew;
  Changing(&shard, [&](List* leaving) {
    shard.mutex.AssertHeld();
    const auto found = shard.entries.find(name);
    if (found != shard.entries.end()) {
      // Another thread was faster, or it is known by name.
      admission = found->second->page != nullptr ? Admission::kNo : Admission::kAgain;
      return;
    }
    if (!large) return;
    MakeRoom(&shard, kPageNameBytes, leaving);
    shard.names.push_front({.name = name});
    shard.entries.emplace(name, shard.names.begin());
    ForgetNames(&shard, ShardCapacity() / kNamesShare / kPageNameBytes, leaving);
  });
  return admission;
}

AlignedBuffer PageCache::Allocate(uint64_t bytes) {
  return AlignedBuffer::TryAllocate(allocator_, bytes, kPageAlignment);
}

void PageCache::Insert(const PageName& name, uint64_t seal, AlignedBuffer bytes,
                       Admission admission) {
  CAIRN_CHECK(!bytes.empty() && admission != Admission::kNo);
  const uint64_t charge = bytes.size() + kPageEntryBytes;
  const auto page = std::make_shared<const AlignedBuffer>(std::move(bytes));
  Shard& shard = ShardOf(name);
  Changing(&shard, [&](List* leaving) {
    shard.mutex.AssertHeld();
    if (const auto found = shard.entries.find(name); found != shard.entries.end()) {
      if (found->second->page != nullptr) return;
      leaving->splice(leaving->begin(), shard.names, found->second);
      shard.entries.erase(found);
    }
    MakeRoom(&shard, charge, leaving);
    if (shard.bytes() + charge > ShardCapacity()) return;  // It has shrunk meanwhile.
    const bool staying = admission == Admission::kAgain;
    List& list = staying ? shard.staying : shard.passing;
    list.push_front({name, page, seal, charge, 0, staying});
    shard.entries.emplace(name, list.begin());
    (staying ? shard.staying_bytes : shard.passing_bytes) += charge;
  });
  budget_->Grew(this);
}

void PageCache::Shrink() {
  for (Shard& shard : shards_) {
    Changing(&shard, [&](List* leaving) {
      shard.mutex.AssertHeld();
      MakeRoom(&shard, 0, leaving);
    });
  }
}

void PageCache::Clear() {
  for (Shard& shard : shards_) {
    Changing(&shard, [&](List* leaving) {
      shard.mutex.AssertHeld();
      for (List* list : {&shard.passing, &shard.staying, &shard.names}) {
        leaving->splice(leaving->end(), *list);
      }
      shard.entries.clear();
      shard.passing_bytes = shard.staying_bytes = 0;
    });
  }
}

void PageCache::MakeRoom(Shard* shard, uint64_t bytes, List* leaving) {
  const uint64_t capacity = ShardCapacity();
  ForgetNames(shard, capacity / kNamesShare / kPageNameBytes, leaving);
  while (shard->bytes() + bytes > capacity) {
    if (shard->passing_bytes > capacity / kPassingShare ||
        (shard->staying.empty() && !shard->passing.empty())) {
      EvictPassing(shard, leaving);
    } else if (!shard->staying.empty()) {
      EvictStaying(shard, leaving);
    } else if (!shard->names.empty()) {
      ForgetNames(shard, shard->names.size() / 2, leaving);
    } else {
      return;
    }
  }
}

void PageCache::EvictPassing(Shard* shard, List* leaving) {
  const auto oldest = std::prev(shard->passing.end());
  shard->passing_bytes -= oldest->charge;
  if (oldest->uses > 0) {
    oldest->uses = 0;
    oldest->staying = true;
    shard->staying_bytes += oldest->charge;
    shard->staying.splice(shard->staying.begin(), shard->passing, oldest);
    return;
  }
  leaving->push_front({.name = oldest->name, .page = std::move(oldest->page)});
  oldest->page = nullptr;
  shard->names.splice(shard->names.begin(), shard->passing, oldest);
}

void PageCache::EvictStaying(Shard* shard, List* leaving) {
  const auto oldest = std::prev(shard->staying.end());
  if (oldest->uses > 0) {
    --oldest->uses;
    shard->staying.splice(shard->staying.begin(), shard->staying, oldest);
    return;
  }
  shard->staying_bytes -= oldest->charge;
  shard->entries.erase(oldest->name);
  leaving->splice(leaving->begin(), shard->staying, oldest);
}

void PageCache::ForgetNames(Shard* shard, uint64_t count_max, List* leaving) {
  while (shard->names.size() > count_max) {
    const auto oldest = std::prev(shard->names.end());
    shard->entries.erase(oldest->name);
    leaving->splice(leaving->begin(), shard->names, oldest);
  }
}

}  // namespace cairn::engine
