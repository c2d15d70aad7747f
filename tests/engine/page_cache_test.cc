// SPDX-License-Identifier: Apache-2.0
//
// Property: the page cache keeps what is used again, within the memory that others leave, and takes
// no harm from large restores; the parts of max_memory_bytes never add up to more.
#include "engine/restore/plan/page_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "base/core/seeded_random.h"
#include "engine/commit/staging.h"
#include "engine/config/memory_parts.h"
#include "tests/support/status.h"

namespace cairn::testing {
namespace {

using engine::PageCache;
using engine::PageName;
using Admission = PageCache::Admission;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSeal = 99;
constexpr uint64_t kSlab = 16 << 10;  // Four pages.
constexpr uint64_t kSlabKept = 64 << 10;

engine::MemoryParts Parts(uint64_t page_floor) {
  engine::MemoryParts parts;
  parts.page_floor = page_floor;
  parts.slab_bytes = kSlab;
  parts.slab_kept = kSlabKept;
  return parts;
}

PageName Name(uint64_t i, uint64_t table = 1) { return {table, 64 * i, 0}; }

class PageCacheTest : public ::testing::Test {
 protected:
  static void* Count(void* context, size_t bytes, size_t alignment) {
    auto* self = static_cast<PageCacheTest*>(context);
    if (self->refuse_) return nullptr;
    self->live_ += bytes;
    return ::operator new(bytes, std::align_val_t{alignment}, std::nothrow);
  }
  static void Free(void* context, void* memory, size_t bytes, size_t alignment) {
    static_cast<PageCacheTest*>(context)->live_ -= bytes;
    ::operator delete(memory, std::align_val_t{alignment});
  }
  Allocator allocator() { return {Count, Free, this}; }

  // As a restore does: what is not there is read, and kept if it may.
  bool Read(PageCache& cache, const PageName& name, bool at_once = true) {
    if (const PageCache::Page page = cache.Find(name, kSeal); page != nullptr) {
      EXPECT_EQ(kPage, page->size());
      uint64_t mark = 0;
      std::memcpy(&mark, page->data(), sizeof(mark));
      EXPECT_EQ(name.table * 1'000'000 + name.fragment, mark);
      return true;
    }
    const Admission admission = cache.Admit(name, kPage, at_once);
    if (admission == Admission::kNo) return false;
    AlignedBuffer bytes = cache.Allocate(kPage);
    if (bytes.empty()) return false;
    const uint64_t mark = name.table * 1'000'000 + name.fragment;
    std::memcpy(bytes.data(), &mark, sizeof(mark));
    cache.Insert(name, kSeal, std::move(bytes), admission);
    return false;
  }
  uint64_t HitsOf(PageCache& cache, uint64_t count, uint64_t table, bool at_once = true) {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < count; ++i) hits += Read(cache, Name(i, table), at_once);
    return hits;
  }

  std::atomic<uint64_t> live_{0};
  bool refuse_ = false;
  MemoryBudget budget_{8 << 20};
};

TEST_F(PageCacheTest, WhatWasReadIsThereWithinTheBound) {
  PageCache cache(&budget_, allocator(), Parts(0));
  EXPECT_EQ(0u, HitsOf(cache, 100, 1));
  EXPECT_EQ(100u, HitsOf(cache, 100, 1));
  EXPECT_EQ(0u, HitsOf(cache, 100, 2)) << "another table";
  for (uint64_t table = 3; table < 30; ++table) {
    HitsOf(cache, 1000, table);
    EXPECT_LE(cache.bytes(), 8u << 20);
    EXPECT_LE(live_, cache.bytes() + kSlabKept);
  }
  EXPECT_GT(cache.bytes(), 7u << 20);
}

// Pages used twice stay, while many times the capacity is read once.
TEST_F(PageCacheTest, OneLargeReadDoesNotPushOutWhatIsUsed) {
  for (const bool at_once : {false, true}) {
    PageCache cache(&budget_, allocator(), Parts(0));
    for (int i = 0; i < 3; ++i) HitsOf(cache, 100, 1);
    HitsOf(cache, 1'000, 7);  // Full, so that those used have passed.
    HitsOf(cache, 100, 1);
    HitsOf(cache, 20'000, 2, at_once);
    EXPECT_GT(HitsOf(cache, 100, 1), 90u) << at_once;
    if (!at_once) {
      EXPECT_EQ(0u, HitsOf(cache, 10, 2)) << "names alone";
    }
  }
}

// Names show that it comes again: the second time it is kept, the third time it is found.
TEST_F(PageCacheTest, AReadIsKeptTheSecondTime) {
  PageCache cache(&budget_, allocator(), Parts(0));
  EXPECT_EQ(0u, HitsOf(cache, 900, 1, false));
  EXPECT_LT(cache.bytes(), 1u << 20) << "names";
  EXPECT_EQ(0u, HitsOf(cache, 900, 1, false));
  EXPECT_EQ(900u, HitsOf(cache, 900, 1, false));
}

TEST_F(PageCacheTest, GivesWhatOthersTake) {
  PageCache cache(&budget_, allocator(), Parts(1 << 20));
  HitsOf(cache, 4000, 1);
  ASSERT_GT(cache.bytes(), 7u << 20);
  budget_.Take(4 << 20);
  EXPECT_LE(cache.bytes(), 4u << 20) << "at once";
  budget_.Take(4 << 20);
  EXPECT_LE(cache.bytes(), 1u << 20);
  EXPECT_GT(cache.bytes(), 1u << 18) << "the floor stays";
  budget_.Return(8 << 20);
  HitsOf(cache, 4000, 2);
  EXPECT_GT(cache.bytes(), 7u << 20);
  EXPECT_LE(live_, (8u << 20) + kSlabKept);
}

// Two of equal shares: neither has more than the other leaves, and each has its half for sure.
TEST_F(PageCacheTest, TwoCachesShareWhatIsLeft) {
  PageCache one(&budget_, allocator(), Parts(0)), other(&budget_, allocator(), Parts(0));
  HitsOf(one, 4000, 1);
  EXPECT_GT(one.bytes(), 7u << 20) << "the other one uses nothing";
  for (int round = 0; round < 3; ++round) HitsOf(other, 4000, 2);
  EXPECT_GT(other.bytes(), 3u << 20);
  EXPECT_GT(one.bytes(), 3u << 20);
  EXPECT_LE(one.bytes() + other.bytes(), 8u << 20);
  budget_.Take(4 << 20);
  EXPECT_LE(one.bytes() + other.bytes(), 4u << 20) << "at once";
  EXPECT_GT(other.bytes(), 1u << 20);
  budget_.Return(4 << 20);
}

// A page that is being copied from lives on when it leaves.
TEST_F(PageCacheTest, AFoundPageOutlivesTheCache) {
  auto cache = std::make_unique<PageCache>(&budget_, allocator(), Parts(0));
  Read(*cache, Name(1));
  PageCache::Page page = cache->Find(Name(1), kSeal);
  ASSERT_NE(nullptr, page);
  cache.reset();
  EXPECT_EQ(kPage, page->size());
  EXPECT_GE(live_, kPage);
  page.reset();
  EXPECT_EQ(0u, live_);
}

TEST_F(PageCacheTest, WithoutMemoryNothingIsKept) {
  PageCache cache(&budget_, allocator(), Parts(0));
  refuse_ = true;
  EXPECT_EQ(0u, HitsOf(cache, 10, 1));
  EXPECT_EQ(0u, HitsOf(cache, 10, 1));
  EXPECT_EQ(0u, cache.bytes());
  EXPECT_EQ(Admission::kNo, cache.Admit(Name(1), 7 << 20, true)) << "larger than its part";
}

TEST_F(PageCacheTest, ANumberGivenTwiceEndsTheProcess) {
  PageCache cache(&budget_, allocator(), Parts(0));
  Read(cache, Name(1));
  EXPECT_DEATH(cache.Find(Name(1), kSeal + 1), "seal");
}

TEST_F(PageCacheTest, RandomUseKeepsTheSums) {
  PageCache cache(&budget_, allocator(), Parts(1 << 18));
  SeededRandom random(1);
  uint64_t taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t rank = random.Next() % 100;
    const uint64_t name = rank < 80 ? random.Next() % 300 : random.Next() % 100'000;
    Read(cache, Name(name), random.Next() % 4 == 0);
    if (i % 1000 == 0) {
      budget_.Return(taken);
      taken = random.Next() % (12 << 20);
      budget_.Take(taken);
    }
    ASSERT_LE(cache.bytes(), cache.capacity() + kPage);
    // Pages that left a slab which others are in do not make it smaller.
    ASSERT_LE(live_, (8u << 20) + kSlabKept);
  }
  budget_.Return(taken);
  budget_.Take(8 << 20);
  EXPECT_LE(cache.bytes(), 1u << 18);
}

TEST(MemoryPartsTest, AddUpToNoMoreThanAll) {
  for (uint64_t max = 16 << 20; max <= 64ull << 30; max = max * 3 / 2) {
    for (const uint64_t hot : {uint64_t{256} << 10, max / 4, max / 2}) {
      for (const uint64_t tree : {uint64_t{0}, uint64_t{64} << 20, UINT64_MAX}) {
        Options options;
        options.max_memory_bytes = max;
        options.hot_tail_bytes = hot;
        options.tree_memory_bytes = tree;
        const engine::MemoryParts parts = engine::DivideMemory(options);
        const uint64_t all = parts.fixed() + parts.objects() + parts.staging + parts.read_buffers;
        EXPECT_LE(all + parts.page_floor, max);
        for (const uint64_t part :
             {parts.index_blocks, parts.directories, parts.read_buffers, parts.page_floor}) {
          EXPECT_GE(part, 256u << 10) << "of " << max << ", hot tail " << hot;
        }
      }
    }
  }
}

TEST(MemoryPartsTest, StagingTakesFromTheBudget) {
  MemoryBudget budget(1 << 20);
  engine::StagingPool pool(Allocator::Default(), 1 << 19, &budget);
  auto some = pool.Take(1 << 18);
  ASSERT_OK(some);
  EXPECT_EQ((1u << 20) - (1u << 18), budget.left());
  EXPECT_FAILS(pool.Take(1 << 19), StatusCode::kBusy, "staging");
  EXPECT_EQ((1u << 20) - (1u << 18), budget.left());
  pool.Return(std::move(*some));
  EXPECT_EQ(1u << 20, budget.left());
}

}  // namespace
}  // namespace cairn::testing
