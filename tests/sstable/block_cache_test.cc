// SPDX-License-Identifier: Apache-2.0
//
// Property: the cache never keeps more than it was given, forgets what was used longest ago, and
// never takes a block from a reader that holds it.
#include "sstable/block_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

AlignedBuffer Block(uint8_t fill, size_t bytes = kTableAlignment) {
  AlignedBuffer block = AlignedBuffer::TryAllocate(Allocator::Default(), bytes, kTableAlignment);
  std::memset(block.data(), fill, bytes);
  return block;
}

TEST(BlockCache, NeverHoldsMoreThanItsCapacity) {
  constexpr size_t kCapacity = 1 << 20;
  TestAllocator memory;
  {
    BlockCache cache(kCapacity);
    std::mt19937_64 random(3);
    size_t most = 0;
    for (uint64_t i = 0; i < 5000; ++i) {
      const size_t bytes = kTableAlignment * (1 + random() % 8);
      AlignedBuffer block = AlignedBuffer::TryAllocate(memory.allocator(), bytes, kTableAlignment);
      cache.Insert({random() % 10, (random() % 1000) * kTableAlignment}, std::move(block));
      ASSERT_LE(cache.bytes(), kCapacity);
      ASSERT_LE(memory.live, cache.bytes());  // Evicted blocks are freed.
      most = std::max(most, cache.bytes());
    }
    EXPECT_GT(most, kCapacity * 3 / 4);  // And it is put to use.
  }
  EXPECT_EQ(memory.live, 0u);
}

TEST(BlockCache, ForgetsWhatWasUsedLongestAgo) {
  // Room for four blocks in each part; whichever part they fall into, a block that is used all the
  // time stays, and one that never is goes.
  BlockCache cache(kCacheShards * 4 * (kTableAlignment + kCacheEntryBytes));
  cache.Insert({1, 0}, Block(1));
  cache.Insert({2, 0}, Block(2));
  for (uint64_t i = 1; i < 200; ++i) {
    ASSERT_NE(cache.Find({1, 0}), nullptr);
    cache.Insert({3, i * kTableAlignment}, Block(3));
  }
  EXPECT_EQ(cache.Find({2, 0}), nullptr);
  EXPECT_EQ(cache.Find({1, 4096}), nullptr);
  EXPECT_EQ(cache.Find({4, 0}), nullptr);
}

TEST(BlockCache, TheFirstOfTwoEqualBlocksStays) {
  BlockCache cache(1 << 20);
  const CachedBlock first = cache.Insert({1, 0}, Block(1));
  const CachedBlock second = cache.Insert({1, 0}, Block(1));
  EXPECT_EQ(first, second);
  EXPECT_EQ(cache.bytes(), kTableAlignment + kCacheEntryBytes);
}

TEST(BlockCache, ABlockLargerThanAPartIsHandedThrough) {
  BlockCache cache(kCacheShards * kTableAlignment);  // Not even one block with its entry.
  const CachedBlock block = cache.Insert({1, 0}, Block(9));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->data()[0], std::byte{9});
  EXPECT_EQ(cache.Find({1, 0}), nullptr);
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(BlockCache, AHeldBlockOutlivesItsPlace) {
  BlockCache cache(kCacheShards * 2 * (kTableAlignment + kCacheEntryBytes));
  const CachedBlock held = cache.Insert({1, 0}, Block(7));
  for (uint64_t i = 1; i < 100; ++i) cache.Insert({1, i * kTableAlignment}, Block(8));
  EXPECT_EQ(cache.Find({1, 0}), nullptr);
  EXPECT_EQ(held->data()[kTableAlignment - 1], std::byte{7});
}

TEST(BlockCache, ManyThreads) {
  BlockCache cache(256 << 10);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 5000; ++i) {
        const uint64_t n = random() % 100;
        const BlockPlace place{n, n * kTableAlignment};
        CachedBlock block = cache.Find(place);
        if (block == nullptr) block = cache.Insert(place, Block(static_cast<uint8_t>(n)));
        ASSERT_EQ(block->data()[100], static_cast<std::byte>(n));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.bytes(), size_t{256} << 10);
}

}  // namespace
}  // namespace cairn::sstable
