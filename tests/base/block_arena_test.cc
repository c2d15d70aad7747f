// SPDX-License-Identifier: Apache-2.0
//
// Property: what is given back to an arena is lent again, never to two, and of what it keeps no
// more than it may; all of it goes back to where it came from, whether the arena ends first or the
// last buffer.

#include "base/core/block_arena.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/size_classes.h"
#include "tests/base/counting_allocator.h"

namespace cairn {
namespace {

using Counting = testing::CountingAllocator;

AlignedBuffer Take(const BlockArena& arena, size_t bytes, size_t alignment = 64) {
  return AlignedBuffer::TryAllocate(arena.allocator(), bytes, alignment);
}

TEST(BlockArena, LendsAgainWhatCameBack) {
  Counting from;
  BlockArena arena(from.allocator(), 8 << 20);
  std::byte* first = nullptr;
  {
    const AlignedBuffer one = Take(arena, 1'000'000);
    first = one.data();
  }
  EXPECT_EQ(arena.kept_bytes(), RoundUpSize(1'000'000));
  const AlignedBuffer again = Take(arena, 990'000);  // The same size when it is rounded.
  const AlignedBuffer other = Take(arena, 1'000'000);
  EXPECT_EQ(again.data(), first);
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(from.taken(), 2u);
  EXPECT_EQ(arena.kept_bytes(), 0u);
  for (size_t bytes = kArenaBlockMin; bytes < size_t{1} << 40; bytes += bytes / 3) {
    EXPECT_GE(RoundUpSize(bytes), bytes);
    EXPECT_LE(RoundUpSize(bytes), bytes + bytes / 8 + 1);
    EXPECT_EQ(RoundUpSize(RoundUpSize(bytes)), RoundUpSize(bytes));
  }
}

TEST(BlockArena, KeepsNoMoreThanItMay) {
  Counting from;
  BlockArena arena(from.allocator(), 4 * (512 << 10));
  {
    std::vector<AlignedBuffer> many;
    for (int i = 0; i < 10; ++i) many.push_back(Take(arena, 512 << 10));
    const AlignedBuffer small = Take(arena, kArenaBlockMin - 1);
    const AlignedBuffer aligned = Take(arena, 512 << 10, 2 << 20);
  }
  EXPECT_EQ(arena.kept_bytes(), 4u * (512 << 10));
  EXPECT_EQ(from.out_bytes(), 4u * (512 << 10));
  arena.Clear();
  EXPECT_EQ(from.out_bytes(), 0u);
  { const AlignedBuffer one = Take(arena, 512 << 10); }
  EXPECT_EQ(from.out_bytes(), 0u) << "it keeps nothing any more";
}

TEST(BlockArena, WhatCameBackLastStays) {
  Counting from;
  BlockArena arena(from.allocator(), 4 << 20);
  {
    std::vector<AlignedBuffer> before;
    for (int i = 0; i < 4; ++i) before.push_back(Take(arena, 1 << 20));
  }
  { const AlignedBuffer larger = Take(arena, 2 << 20); }
  EXPECT_EQ(arena.kept_bytes(), 4u << 20) << "two of the old ones went";
  const size_t taken = from.taken();
  for (int i = 0; i < 10; ++i) {
    const AlignedBuffer larger = Take(arena, 2 << 20);
    const AlignedBuffer one = Take(arena, 1 << 20), another = Take(arena, 1 << 20);
  }
  EXPECT_EQ(from.taken(), taken);
  { const AlignedBuffer all = Take(arena, 8 << 20); }
  EXPECT_EQ(arena.kept_bytes(), 4u << 20) << "what is more than may be kept pushes nothing out";
  EXPECT_EQ(from.out_bytes(), 4u << 20);
}

TEST(BlockArena, TrimGivesBackWhatNobodyTook) {
  Counting from;
  BlockArena arena(from.allocator(), 8 << 20);
  std::vector<AlignedBuffer> two;
  two.push_back(Take(arena, 512 << 10));
  two.push_back(Take(arena, 512 << 10));
  two.clear();
  arena.Trim();  // They came back since the last.
  EXPECT_EQ(arena.kept_bytes(), 2u * (512 << 10));
  { const AlignedBuffer used = Take(arena, 512 << 10); }
  arena.Trim();
  EXPECT_EQ(arena.kept_bytes(), 512u << 10);
  arena.Trim();
  EXPECT_EQ(arena.kept_bytes(), 0u);
}

TEST(BlockArena, ARefusalIsPassedOn) {
  Counting from;
  BlockArena arena(from.allocator(), 8 << 20);
  from.refuses = true;
  EXPECT_TRUE(Take(arena, 512 << 10).empty());
  from.refuses = false;
  EXPECT_FALSE(Take(arena, 512 << 10).empty());
}

TEST(BlockArena, BuffersMayOutliveIt) {
  Counting from;
  AlignedBuffer left;
  {
    const BlockArena arena(from.allocator(), 8 << 20);
    left = Take(arena, 512 << 10);
  }
  left.data()[0] = std::byte{1};
  EXPECT_EQ(from.out_bytes(), 512u << 10);
  left = AlignedBuffer();
  EXPECT_EQ(from.out_bytes(), 0u);
}

TEST(BlockArena, ThreadsNeverShareABlock) {
  Counting from;
  BlockArena arena(from.allocator(), 8 << 20);
  std::vector<std::thread> threads;
  for (uint32_t id = 1; id <= 4; ++id) {
    threads.emplace_back([&arena, id] {
      std::mt19937 random(id);
      std::vector<AlignedBuffer> held(8);
      for (int i = 0; i < 1000; ++i) {
        AlignedBuffer& slot = held[random() % held.size()];
        if (!slot.empty()) {
          ASSERT_EQ(slot.data()[0], std::byte(id));
          ASSERT_EQ(slot.data()[slot.size() - 1], std::byte(id));
        }
        slot = Take(arena, kArenaBlockMin + random() % 500'000);
        slot.data()[0] = slot.data()[slot.size() - 1] = std::byte(id);
        if (i % 500 == 0) arena.Trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cairn
