// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/pinned_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "engine/tree/memory/retention.h"

namespace cairn::engine {

PinnedGroup::PinnedGroup(PinnedArena* arena, uint64_t seal, std::span<const uint32_t> sizes)
    : arena_(*arena), seal_(seal), frames_(sizes.size()) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    frames_[i].offset = bytes_;
    frames_[i].bytes = sizes[i];
    bytes_ += AlignUp(uint64_t{sizes[i]}, uint64_t{sstable::kFrameAlignment});
  }
}

std::span<const std::byte> PinnedGroup::Find(size_t index) const {
  const Frame& frame = frames_[index];
  if (frame.state.load(std::memory_order_acquire) != kThere) return {};
  return {at_ + frame.offset, frame.bytes};
}

bool PinnedGroup::Put(size_t index, std::span<const std::byte> stored) {
  Frame& frame = frames_[index];
  CAIRN_CHECK(stored.size() == frame.bytes);
  uint8_t none = kNone;
  if (!frame.state.compare_exchange_strong(none, kComing)) return false;
  std::memcpy(at_ + frame.offset, stored.data(), stored.size());
  frame.state.store(kThere, std::memory_order_release);
  return true;
}

size_t PinnedCache::NameHash::operator()(const PinnedName& name) const {
  return SealHash(name.fragment + name.group, name.table);
}

PinnedCache::PinnedCache(std::unique_ptr<PinnedArena> arena, const GpuOptions& options)
    : capacity_(arena->bytes()),
      tokens_(options.pinned_tokens),
      tokens_of_(options.pinned_tokens_of),
      arena_(std::move(arena)),
      cache_({.entry_bytes = 0, .name_bytes = kPageNameBytes, .names_share = kPinnedNamesShare}) {}

// At most what their part holds: in a longer range each new token would evict the next.
PinnedCache::BranchNeed PinnedCache::NeedOf(const RestorePlan& plan) const {
  const auto own = tokens_of_.find(plan.model->identity.name);
  const uint64_t tokens = own == tokens_of_.end() ? tokens_ : own->second;
  const uint64_t reach =
      capacity_ / kPinnedKeptShare / std::max<uint64_t>(1, PositionKvBytes(*plan.model));
  const uint64_t newest = std::min({tokens, reach, plan.length});
  const uint64_t ns = Hash(std::as_bytes(std::span(plan.ns)));
  return {.newest_from = newest == 0 ? UINT64_MAX : plan.length - newest, .ns = ns};
}

PinnedCache::Group PinnedCache::Find(const PinnedName& name, uint64_t seal, bool kept,
                                     uint64_t ns) {
  const MutexLock lock(&mutex_);
  return FindLocked(name, seal, kept, ns);
}

PinnedCache::Group PinnedCache::FindLocked(const PinnedName& name, uint64_t seal, bool kept,
                                           uint64_t ns) {
  Group group;
  if (const auto found = kept_.find(name); found != kept_.end()) {
    group = found->second->group;
    if (kept) TakeKept(found->second);
  } else if (auto cached = cache_.Find(name)) {
    group = std::move(*cached);
    if (kept) cache_.Erase(name);
  }
  if (group == nullptr) return nullptr;
  CAIRN_CHECK(group->seal() == seal);
  if (kept) Keep(name, group, ns);
  return group;
}

PinnedCache::Group PinnedCache::Make(const PinnedName& name, uint64_t seal,
                                     std::span<const uint32_t> sizes, const Coming& coming,
                                     uint64_t ns) {
  const MutexLock lock(&mutex_);
  if (arena_ == nullptr) return nullptr;
  if (Group found = FindLocked(name, seal, coming.kept, ns)) return found;
  auto group = std::make_shared<PinnedGroup>(arena_.get(), seal, sizes);
  const uint64_t cost = group->cost();
  CacheAdmission admission = CacheAdmission::kAgain;
  if (!coming.kept) {
    admission = cache_.Admit(name, cost, coming.large && !coming.ahead, cache_capacity());
    if (admission == CacheAdmission::kNo) return nullptr;
    if (coming.ahead) admission = CacheAdmission::kAgain;
  }
  std::byte* const at = TakeRoom(cost);
  if (at == nullptr) {
    counters_.refusals.fetch_add(sizes.size(), std::memory_order_relaxed);
    return nullptr;
  }
  group->Place(at);
  if (coming.kept) {
    Keep(name, group, ns);
  } else {
    cache_.Insert(name, group, cost, admission, cache_capacity());
  }
  return group;
}

std::byte* PinnedCache::TakeRoom(uint64_t bytes) {
  std::byte* at = arena_->Take(bytes);
  for (uint32_t i = 0; at == nullptr && i < kPinnedRoomTries && cache_.bytes() != 0; ++i) {
    cache_.ShrinkTo(cache_.bytes() - std::min(cache_.bytes(), bytes));
    at = arena_->Take(bytes);
  }
  return at;
}

// If there is no memory it is not kept, and nothing else has changed.
void PinnedCache::Keep(const PinnedName& name, Group group, uint64_t ns) {
  const uint64_t cost = group->cost();
  Namespace& of = namespaces_[ns];
  std::list<Kept> one;
  one.push_front({name, std::move(group), ns});
  kept_.emplace(name, one.begin());
  of.groups.splice(of.groups.begin(), one);
  of.bytes += cost;
  kept_bytes_ += cost;
  while (kept_bytes_ > capacity_ / kPinnedKeptShare) {
    const auto most = std::max_element(
        namespaces_.begin(), namespaces_.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    Kept oldest = TakeKept(std::prev(most->second.groups.end()));
    const uint64_t oldest_cost = oldest.group->cost();
    cache_.Insert(oldest.name, std::move(oldest.group), oldest_cost, CacheAdmission::kAgain,
                  cache_capacity());
  }
  cache_.ShrinkTo(cache_capacity());
}

PinnedCache::Kept PinnedCache::TakeKept(std::list<Kept>::iterator at) {
  Kept kept = std::move(*at);
  const auto of = namespaces_.find(kept.ns);
  of->second.groups.erase(at);
  of->second.bytes -= kept.group->cost();
  if (of->second.groups.empty()) namespaces_.erase(of);
  kept_.erase(kept.name);
  kept_bytes_ -= kept.group->cost();
  return kept;
}

void PinnedCache::Forget(uint64_t table) {
  const MutexLock lock(&mutex_);
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto kept = (at++)->second;
    if (kept->name.table == table) TakeKept(kept);
  }
  cache_.EraseIf([&](const PinnedName& name) { return name.table == table; });
}

void PinnedCache::DropLocked() {
  kept_.clear();
  namespaces_.clear();
  kept_bytes_ = 0;
  cache_.Clear();
}

void PinnedCache::Drop() {
  const MutexLock lock(&mutex_);
  DropLocked();
}

void PinnedCache::Close() {
  const MutexLock lock(&mutex_);
  DropLocked();
  arena_ = nullptr;
}

uint64_t PinnedCache::bytes() const {
  const MutexLock lock(&mutex_);
  return arena_ == nullptr ? 0 : arena_->used_bytes();
}

}  // namespace cairn::engine
