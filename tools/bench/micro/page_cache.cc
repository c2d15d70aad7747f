// SPDX-License-Identifier: Apache-2.0
//
// Looking for a frame in the page cache, where it is and where it is not; and taking one in.
#include "engine/restore/plan/page_cache.h"

#include <cstring>

#include "base/core/check.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

using engine::PageCache;
using engine::PageName;

constexpr uint32_t kEntries = 4096;
constexpr uint64_t kPageBytes = 4 << 10, kSeal = 1;
constexpr uint64_t kBudgetBytes = 256 << 20;  // All of them, and more, stay.

PageName NameOf(uint32_t i, uint64_t table) { return {table, uint64_t{i} / 16 * 4096, i % 16}; }

// As a store of so much memory divides it.
engine::MemoryParts PartsOf(uint64_t bytes) {
  Options options;
  options.max_memory_bytes = bytes;
  options.hot_tail_bytes = bytes / 4;
  return engine::DivideMemory(options);
}

void Insert(PageCache* cache, const PageName& name) {
  const PageCache::Admission admission = cache->Admit(name, kPageBytes, /*at_once=*/true);
  CAIRN_CHECK(admission != PageCache::Admission::kNo);
  AlignedBuffer page = cache->Allocate(kPageBytes);
  CAIRN_CHECK(!page.empty());
  std::memset(page.data(), 1, page.size());
  cache->Insert(name, kSeal, std::move(page), admission);
}

void Find(::benchmark::State& state, bool there) {
  MemoryBudget budget(kBudgetBytes);
  PageCache cache(&budget, Allocator::Default(), PartsOf(kBudgetBytes));
  for (uint32_t i = 0; i < kEntries; ++i) Insert(&cache, NameOf(i, 1));
  const std::vector<uint32_t> order = ShuffledOrder(kEntries);
  uint32_t next = 0;
  const Meter meter(&state, 1, 0);
  for (auto _ : state) {
    const PageCache::Page page = cache.Find(NameOf(order[next], there ? 1 : 2), kSeal);
    CAIRN_CHECK((page != nullptr) == there);
    next = (next + 1) % kEntries;
  }
}

// A cache that is full: each that comes pushes one out.
void Replace(::benchmark::State& state) {
  MemoryBudget budget(kEntries * kPageBytes);
  PageCache cache(&budget, Allocator::Default(), PartsOf(kEntries * kPageBytes));
  uint64_t table = 1;
  for (; table < 3; ++table) {
    for (uint32_t i = 0; i < kEntries; ++i) Insert(&cache, NameOf(i, table));
  }
  uint32_t next = 0;
  const Meter meter(&state, 1, kPageBytes);
  for (auto _ : state) {
    Insert(&cache, NameOf(next, table));
    next = (next + 1) % kEntries;
    table += next == 0 ? 1 : 0;
  }
}

}  // namespace

void RegisterPageCache() {
  ::benchmark::RegisterBenchmark("page_cache/hit", Find, true);
  ::benchmark::RegisterBenchmark("page_cache/miss", Find, false);
  ::benchmark::RegisterBenchmark("page_cache/replace", Replace);
}

}  // namespace cairn::bench::micro
