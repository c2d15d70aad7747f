// SPDX-License-Identifier: Apache-2.0
//
// Property: a frame never overlaps another, one that came back gives its place to the next of its
// class, and all memory goes back to where it came from, whether the arena ends first or the last
// frame.

#include "base/core/slab_arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "tests/base/counting_allocator.h"

namespace cairn {
namespace {

using testing::CountingAllocator;

constexpr size_t kSlab = 256 << 10;
constexpr size_t kFrame = 32 << 10;
constexpr uint64_t kKeep = 2 * kSlab;

AlignedBuffer Take(const SlabArena& arena, size_t bytes) {
  return AlignedBuffer::TryAllocate(arena.allocator(), bytes, 64);
}

TEST(SlabArenaTest, AFrameTakesThePlaceOfTheOneThatLeft) {
  CountingAllocator from;
  SlabArena arena(from.allocator(), kSlab, kKeep);
  std::vector<AlignedBuffer> frames;
  for (int i = 0; i < 64; ++i) frames.push_back(Take(arena, kFrame));
  const uint64_t slabs = from.taken();
  EXPECT_EQ(64 / (kSlab / kFrame), slabs);
  for (int round = 0; round < 10'000; ++round) {
    const auto at = static_cast<size_t>(round) * 37 % frames.size();
    const std::byte* const place = frames[at].data();
    frames[at] = AlignedBuffer();
    frames[at] = Take(arena, kFrame - static_cast<size_t>(round) % 2000);  // All in one size class.
    EXPECT_EQ(place, frames[at].data());
  }
  EXPECT_EQ(slabs, from.taken());
}

TEST(SlabArenaTest, ASlabIsAsLargeAsWasAskedAndItsCells) {
  CountingAllocator from;
  SlabArena arena(from.allocator(), kSlab, kKeep);
  const AlignedBuffer frame = Take(arena, kFrame);
  EXPECT_EQ(8 * (kFrame + kSlabCell), from.out_bytes());
  EXPECT_EQ(kFrame + kSlabCell, arena.CostOf(kFrame));
  EXPECT_EQ(7 * (kFrame + kSlabCell), arena.unused_bytes());
  EXPECT_EQ(0u, arena.kept_bytes());
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(frame.data()) % 64);
}

TEST(SlabArenaTest, WhatIsNoFrameGoesToTheOtherAllocator) {
  CountingAllocator from;
  SlabArena arena(from.allocator(), kSlab, kKeep);
  {
    const AlignedBuffer small = Take(arena, kSlabFrameMin - 1), large = Take(arena, kSlab / 2 + 1);
    const AlignedBuffer aligned = AlignedBuffer::TryAllocate(arena.allocator(), kFrame, 4096);
    EXPECT_EQ(small.size() + large.size() + aligned.size(), from.out_bytes());
    EXPECT_EQ(kSlab, arena.CostOf(kSlab));
  }
  EXPECT_EQ(0u, from.out_bytes());
  EXPECT_EQ(0u, arena.unused_bytes());
}

TEST(SlabArenaTest, KeepsSoManyEmptySlabsAndGivesThemBackWhenNobodyWantsThem) {
  CountingAllocator from;
  SlabArena arena(from.allocator(), kSlab, kKeep);
  std::vector<AlignedBuffer> frames;
  for (int i = 0; i < 64; ++i) frames.push_back(Take(arena, kFrame));
  frames.clear();
  EXPECT_GT(from.out_bytes(), 0u);
  EXPECT_LE(from.out_bytes(), kKeep);
  EXPECT_EQ(from.out_bytes(), arena.kept_bytes());
  arena.Trim();
  EXPECT_GT(from.out_bytes(), 0u) << "used since the call before";
  arena.Trim();
  EXPECT_EQ(0u, from.out_bytes());
  EXPECT_EQ(0u, arena.kept_bytes());
  EXPECT_EQ(0u, arena.unused_bytes());
}

TEST(SlabArenaTest, FramesOutliveTheArena) {
  CountingAllocator from;
  AlignedBuffer frame;
  {
    SlabArena arena(from.allocator(), kSlab, kKeep);
    frame = Take(arena, kFrame);
    const AlignedBuffer other = Take(arena, kFrame);
  }
  std::memset(frame.data(), 1, frame.size());
  EXPECT_GT(from.out_bytes(), 0u);
  frame = AlignedBuffer();
  EXPECT_EQ(0u, from.out_bytes());
}

TEST(SlabArenaTest, WithoutMemoryThereIsNoFrame) {
  CountingAllocator from;
  SlabArena arena(from.allocator(), kSlab, kKeep);
  from.refuses = true;
  EXPECT_TRUE(Take(arena, kFrame).empty());
  EXPECT_EQ(0u, arena.unused_bytes());
  from.refuses = false;
  EXPECT_FALSE(Take(arena, kFrame).empty());
}

TEST(SlabArenaTest, ManyThreadsShareNoByte) {
  CountingAllocator from;
  {
    SlabArena arena(from.allocator(), kSlab, kKeep);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t);
        std::vector<std::pair<AlignedBuffer, int>> frames(16);
        for (int i = 0; i < 5'000; ++i) {
          auto& [frame, mark] = frames[random() % frames.size()];
          if (!frame.empty()) {
            ASSERT_EQ(mark, static_cast<int>(frame.data()[0]));
            ASSERT_EQ(mark, static_cast<int>(frame.data()[frame.size() - 1]));
          }
          frame = Take(arena, kSlabFrameMin + random() % (96 << 10));
          mark = static_cast<int>(random() % 256);
          std::memset(frame.data(), mark, frame.size());
          if (random() % 500 == 0) arena.Trim();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(0u, from.out_bytes());
}

}  // namespace
}  // namespace cairn
