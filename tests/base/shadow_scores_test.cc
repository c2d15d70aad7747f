// SPDX-License-Identifier: Apache-2.0
//
// Property: landmarks, outliers, scores and selection are what docs/shadow.md says: the softmax by
// query head, the maximum over the group, the largest first and of equal ones the first. Method:
// cases computed by hand; drawn ones against a softmax in double; a key that was planted is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/shadow/chunk_scores.h"
#include "base/shadow/landmarks.h"
#include "tests/base/shadow_samples.h"
#include "tests/support/test_seed.h"

namespace cairn::shadow {
namespace {

using testing::MakeRows;
using testing::StoreBlocks;
using Ids = std::vector<uint32_t>;

std::vector<uint16_t> Bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(ToBf16(value));
  return bits;
}

TEST(ShadowScores, ALandmarkIsTheMeanRoundedOnce) {
  // Two channels, chunks of two. 1 and 1 + 2^-7 have the mean 1 + 2^-8: halfway, so to even.
  const std::vector<uint16_t> rows =
      Bf16({1.0F, 2.0F, 1.0F + 0x1p-7F, 4.0F, 1.0F + 0x1p-7F, -1.0F, 1.0F + 0x1p-6F, 1.0F});
  std::vector<uint16_t> landmarks(4);
  MakeLandmarks({.channels = 2, .chunk_tokens = 2, .rows = rows}, landmarks);
  EXPECT_EQ(landmarks, Bf16({1.0F, 3.0F, 1.0F + 0x1p-6F, 0.0F}));
}

TEST(ShadowScores, TheSumOfALandmarkIsInTheOrderOfTokens) {
  // 2^24 + 1 - 2^24 is 0 in this order, and 1 in another one.
  const std::vector<uint16_t> rows = Bf16({0x1p24F, 1.0F, -0x1p24F, 0.0F});
  std::vector<uint16_t> landmarks(1);
  MakeLandmarks({.channels = 1, .chunk_tokens = 4, .rows = rows}, landmarks);
  EXPECT_EQ(landmarks, Bf16({0.0F}));
}

TEST(ShadowScores, TheCosineIsThatOfTheWorstKey) {
  // Landmark (1, 1); keys (2, 0) and (0, 2): 1 / sqrt(2). Then keys that are zero; then equal ones.
  const std::vector<uint16_t> rows = Bf16({2, 0, 0, 2, 0, 0, 3, 3, 4, 3, 4, 3, 1, 0, -1, 0});
  const ChunkKeys keys{.channels = 2, .chunk_tokens = 2, .rows = rows};
  std::vector<uint16_t> landmarks(8);
  MakeLandmarks(keys, landmarks);
  const std::vector<float> cosines = ChunkCosines(keys, landmarks);
  ASSERT_EQ(cosines.size(), 4u);
  EXPECT_NEAR(cosines[0], std::sqrt(0.5), 1e-6);
  EXPECT_EQ(cosines[1], 0.0F);
  EXPECT_EQ(cosines[2], 1.0F);
  EXPECT_EQ(cosines[3], 0.0F);  // The landmark is zero.
}

TEST(ShadowScores, OutliersAreTheLowestOfTheOthersTiesToTheFirst) {
  const ShadowPlan plan{.covered = 64, .chunks = 8, .sink_chunks = 2, .outlier_chunks = 3};
  const std::vector<float> cosines = {-1, -1, 0.5F, 0.9F, 0.25F, 0.5F, 0.5F, 0.75F};
  const Ids outliers = FindOutliers(plan, cosines);
  EXPECT_EQ(outliers, (Ids{2, 4, 5}));
  const Ids always = AlwaysAttended(plan, outliers);
  EXPECT_EQ(always, Ids{0b00110111});
  EXPECT_TRUE(IsAlways(always.data(), 0));
  EXPECT_FALSE(IsAlways(always.data(), 3));
}

// Scores of one query head, straight: `best` has their order.
Ids Select(const std::vector<float>& score, uint32_t budget, Ids always = {0, 0}) {
  return SelectChunks(SumScores(score, static_cast<uint32_t>(score.size()), 1), always, budget);
}

TEST(ShadowScores, TiesGoToTheFirst) {
  EXPECT_EQ(Select({1, 3, 2, 3, 3, 0}, 2), (Ids{1, 3}));
  EXPECT_EQ(Select({1, 3, 2, 3, 3, 0}, 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(Select({-0.0F, 0.0F, -0.0F, 0.0F}, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(Select({1, 1, 1, 1}, 0), Ids{});
}

TEST(ShadowScores, WhatIsAlwaysAttendedIsNotSelected) {
  EXPECT_EQ(Select({1, -kInfinity, 2, 0}, 2, {0b0010}), (Ids{0, 2}));
  EXPECT_EQ(Select({1, -kInfinity, 2, 0}, 9, {0b0010}), (Ids{0, 2, 3}));
}

TEST(ShadowScores, TheMaximumOverTheGroupIsOfProbabilities) {
  // The second head has far larger scores, but they are all alike: the first one's peak wins.
  const ChunkScores scores = SumScores({0, 8, 0, 0, 100, 100, 101, 100}, 4, 2);
  EXPECT_EQ(SelectChunks(scores, Ids{0}, 1), (Ids{1}));
  EXPECT_EQ(SelectChunks(scores, Ids{0}, 2), (Ids{1, 2}));
  EXPECT_NEAR(scores.best[1], -std::log(1 + 3 * std::exp(-8.0)), 1e-6);
  EXPECT_NEAR(scores.best[2], -std::log(1 + 3 * std::exp(-1.0)), 1e-6);
}

TEST(ShadowScores, SumsAreByTiles) {
  std::vector<float> score(600);
  for (size_t i = 0; i < score.size(); ++i) score[i] = static_cast<float>(i / kTileChunks);
  const ChunkScores scores = SumScores(score, 600, 1);
  ASSERT_EQ(scores.tiles.size(), 3u);
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(scores.tiles[t].max, static_cast<float>(t));
    EXPECT_EQ(scores.tiles[t].sum, t == 2 ? 600 - 512 : 256.0F);
  }
  EXPECT_NEAR(scores.log_sum[0], 2 + std::log(256 * std::exp(-2.0) + 256 * std::exp(-1.0) + 88),
              1e-6);
}

TEST(ShadowScores, NumbersThatAreNoneSelectTheFirst) {
  const float nan = std::nanf("");
  EXPECT_EQ(Select({nan, nan, nan}, 2), (Ids{0, 1}));
  EXPECT_EQ(Select({-kInfinity, -kInfinity, -kInfinity}, 2), (Ids{0, 1}));
}

TEST(ShadowScores, AreASoftmaxByQueryHead) {
  const uint64_t seed = testing::QuickTestSeed();
  const testing::Repeatable repeatable(seed);
  SeededRandom random(seed);
  for (int round = 0; round < 60; ++round) {
    const bool fp16 = random.Below(2) == 0;
    constexpr uint32_t kBits[] = {4, 8, 16};
    const BlockLayout layout{64, kBits[random.Below(3)]};
    const auto chunks = static_cast<uint32_t>(1 + random.Below(700));
    const auto group = static_cast<uint32_t>(1 + random.Below(8));
    const std::vector<uint16_t> rows = MakeRows(random, testing::Rows::kKeys, fp16, 64, chunks);
    const size_t whole = size_t{chunks} / kBlockRows * kBlockRows * 64;
    const std::vector<std::byte> blocks = StoreBlocks(layout, fp16, std::span(rows).first(whole));
    const Ids always(chunks / 32 + 1);
    const StoredLandmarks landmarks{.layout = layout,
                                    .fp16 = fp16,
                                    .chunks = chunks,
                                    .blocks = blocks,
                                    .tail = std::span(rows).subspan(whole),
                                    .always = always};
    std::vector<float> queries(size_t{group} * 64);
    for (float& x : queries) x = static_cast<float>(random.Fraction() - 0.5);
    const ChunkScores scores = ScoreChunks(landmarks, queries, 0.125F);
    std::vector<uint16_t> row(64);
    for (uint32_t g = 0; g < group; ++g) {
      std::vector<double> exact;
      for (uint32_t i = 0; i < chunks; ++i) {
        landmarks.Read(i, row);
        double dot = 0;
        for (uint32_t c = 0; c < 64; ++c) {
          dot += static_cast<double>(queries[g * 64 + c]) * Widened(fp16, row[c]);
        }
        exact.push_back(0.125 * dot);
        ASSERT_NEAR(scores.score[g * chunks + i], exact.back(), 1e-4);
      }
      double sum = 0;
      for (const double s : exact) sum += std::exp(s);
      ASSERT_NEAR(scores.log_sum[g], std::log(sum), 1e-4) << repeatable.command();
    }
    // None that is left out is better than one that is selected.
    const auto budget = static_cast<uint32_t>(1 + random.Below(chunks));
    const Ids selected = SelectChunks(scores, always, budget);
    ASSERT_EQ(selected.size(), budget);
    ASSERT_TRUE(std::is_sorted(selected.begin(), selected.end()));
    float worst = kInfinity, best = -kInfinity;
    for (uint32_t i = 0; i < chunks; ++i) {
      if (std::binary_search(selected.begin(), selected.end(), i)) {
        worst = std::min(worst, scores.best[i]);
      } else {
        best = std::max(best, scores.best[i]);
      }
    }
    ASSERT_GE(worst, best);
  }
}

TEST(ShadowScores, APlantedKeyIsFound) {
  SeededRandom random(7);
  constexpr uint32_t kTokens = 1024, kChannels = 64, kChunk = 4, kPlanted = 601;
  std::vector<uint16_t> rows(size_t{kTokens} * kChannels);
  std::vector<float> query(kChannels);
  for (uint16_t& x : rows) x = ToBf16(static_cast<float>(random.Fraction() - 0.5));
  for (uint32_t c = 0; c < kChannels; ++c) {
    query[c] = static_cast<float>(random.Fraction() - 0.5);
    rows[kPlanted * kChannels + c] = ToBf16(8.0F * query[c]);
  }
  std::vector<uint16_t> landmarks(rows.size() / kChunk);
  MakeLandmarks({.channels = kChannels, .chunk_tokens = kChunk, .rows = rows}, landmarks);
  for (const uint32_t bits : {4u, 8u, 16u}) {
    const BlockLayout layout{kChannels, bits};
    const std::vector<std::byte> blocks = StoreBlocks(layout, false, landmarks);
    const Ids always(kTokens / kChunk / 32);
    const ChunkScores scores = ScoreChunks(
        {.layout = layout, .chunks = kTokens / kChunk, .blocks = blocks, .always = always}, query,
        0.125F);
    EXPECT_EQ(SelectChunks(scores, always, 1), Ids{kPlanted / kChunk}) << bits;
  }
}

}  // namespace
}  // namespace cairn::shadow
