// SPDX-License-Identifier: Apache-2.0
//
// Property: the log's memory grows as it is touched ahead, by the missing amount; an append that is
// faster takes the oldest chunk that nobody pins, and untouched memory only where there is none;
// Clear gives back all, also what is just being touched.

#include "wal/hot_tail.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/base/counting_allocator.h"
#include "wal/constants.h"

namespace cairn::wal {
namespace {

using testing::CountingAllocator;

constexpr uint64_t kChunk = 4 * kPrefaultBytes;
constexpr uint64_t kLimit = 4 * kHotTailAtOnce * kChunk;

class HotTailTest : public ::testing::Test {
 protected:
  // The next of segment 1. The chunk is not pinned.
  uint64_t Add() {
    bool pinned = false;
    const auto chunk = tail_.Add(1, static_cast<uint32_t>(offset_), kChunk, &pinned);
    EXPECT_NE(nullptr, chunk);
    offset_ += kChunk;
    return tail_.bytes();
  }
  void Touch() {
    while (tail_.Prefault()) {
    }
  }

  CountingAllocator from_;
  HotTail tail_{from_.allocator(), kLimit, kChunk};
  uint64_t offset_ = 0;
};

TEST_F(HotTailTest, GrowsNoFasterThanItIsTouched) {
  for (uint64_t i = 1; i <= kHotTailAtOnce; ++i) EXPECT_EQ(i * kChunk, Add());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(kHotTailAtOnce * kChunk, Add()) << "the oldest is taken";
  EXPECT_EQ(kHotTailAtOnce, from_.taken());
  Touch();
  for (uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ((kHotTailAtOnce + i) * kChunk, Add()) << "what was missing was not made up for";
  }
  EXPECT_EQ((kHotTailAtOnce + 5) * kChunk, Add()) << "more is touched than was missing";
  Touch();
  EXPECT_EQ((kHotTailAtOnce + 6) * kChunk, Add());
  while (tail_.bytes() < kLimit) {
    Touch();
    Add();
  }
  EXPECT_FALSE(tail_.Prefault()) << "there is no room for more";
  EXPECT_EQ(kLimit, Add());
}

TEST_F(HotTailTest, WhatIsTouchedAheadIsWithinTheLimit) {
  for (uint64_t bytes = 0; bytes < 2 * kLimit; bytes += kChunk) Add();
  Touch();
  EXPECT_EQ(kLimit, from_.out_bytes());
  EXPECT_EQ(kHotTailAtOnce * kChunk, tail_.bytes());
  for (uint64_t bytes = kHotTailAtOnce * kChunk; bytes < 2 * kLimit; bytes += kChunk) Add();
  EXPECT_EQ(kLimit, tail_.bytes());
  EXPECT_EQ(kLimit, from_.out_bytes());
}

TEST_F(HotTailTest, WhereAllArePinnedItTakesWhatIsUntouched) {
  std::vector<std::shared_ptr<HotTail::Chunk>> pins;
  bool pinned = false;
  while (true) {
    auto chunk = tail_.Add(1, static_cast<uint32_t>(offset_), kChunk, &pinned);
    offset_ += kChunk;
    if (chunk == nullptr) break;
    pins.push_back(std::move(chunk));
  }
  EXPECT_TRUE(pinned);
  EXPECT_EQ(kLimit, tail_.bytes());
}

TEST_F(HotTailTest, ClearGivesBackWhatIsBeingTouched) {
  Add();
  EXPECT_TRUE(tail_.Prefault());
  EXPECT_EQ(2 * kChunk, from_.out_bytes());
  tail_.Clear();
  EXPECT_EQ(0u, from_.out_bytes());
}

TEST_F(HotTailTest, WithoutMemoryNothingIsTouched) {
  from_.refuses = true;
  EXPECT_FALSE(tail_.Prefault());
  from_.refuses = false;
  EXPECT_TRUE(tail_.Prefault());
}

}  // namespace
}  // namespace cairn::wal
