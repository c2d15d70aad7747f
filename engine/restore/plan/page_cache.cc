// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/plan/page_cache.h"

#include <optional>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/check.h"

namespace cairn::engine {

PageCache::PageCache(MemoryBudget* budget, const Allocator& allocator, const MemoryParts& memory)
    : budget_(budget),
      floor_bytes_(memory.page_floor),
      slabs_(allocator, memory.slab_bytes, memory.slab_kept),
      frames_({.entry_bytes = kPageEntryBytes,
               .name_bytes = kPageNameBytes,
               .names_share = kNamesShare}) {
  budget_->AddCache(this);
}

PageCache::~PageCache() { budget_->RemoveCache(this); }

size_t PageCache::NameHash::operator()(const PageName& name) const {
  return SealHash(name.fragment + name.frame, name.table);
}

PageCache::Page PageCache::Find(const PageName& name, uint64_t seal) {
  std::optional<Kept> found = frames_.Find(name);
  if (!found) return nullptr;
  CAIRN_CHECK(found->seal == seal);
  return std::move(found->page);
}

PageCache::Admission PageCache::Admit(const PageName& name, uint64_t bytes, bool at_once) {
  return frames_.Admit(name, slabs_.CostOf(bytes), /*names_only=*/!at_once, capacity());
}

AlignedBuffer PageCache::Allocate(uint64_t bytes) {
  return AlignedBuffer::TryAllocate(slabs_.allocator(), bytes, kPageAlignment);
}

void PageCache::Insert(const PageName& name, uint64_t seal, AlignedBuffer bytes,
                       Admission admission) {
  CAIRN_CHECK(!bytes.empty());
  const uint64_t cost = slabs_.CostOf(bytes.size());
  Kept kept{std::make_shared<const AlignedBuffer>(std::move(bytes)), seal};
  frames_.Insert(name, std::move(kept), cost, admission, capacity());
  budget_->Grew(this);
}

void PageCache::Clear() {
  frames_.Clear();
  slabs_.Clear();
}

}  // namespace cairn::engine
