// SPDX-License-Identifier: Apache-2.0
//
// Property: a basis has the directions that hold most of the keys, in order and with a fixed sign;
// keys that lie in no more directions come back, also through rotation. Method: Gram matrices whose
// eigenvectors are known; drawn keys of a low rank, stored rotated.
#include <gtest/gtest.h>

#include <cmath>

#include "base/codec/rotary.h"
#include "base/core/seeded_random.h"
#include "base/shadow/low_rank.h"
#include "base/shadow/row_math.h"
#include "cairn/model.h"

namespace cairn::shadow {
namespace {

ShadowSpec OfRank(uint32_t rank) {
  ShadowSpec spec;
  spec.keys = ShadowKeys::kLowRank;
  spec.rank = rank;
  return spec;
}

ShadowSpec OfEnergy(double energy) {
  ShadowSpec spec = OfRank(0);
  spec.rank_energy = energy;
  return spec;
}

TEST(ShadowLowRank, AGramMatrixIsTheSumOfProducts) {
  GramMatrix gram(2);
  gram.Add(std::vector<float>{1, 2, 3, 4});
  gram.Add(std::vector<float>{-1, 1});
  EXPECT_EQ(gram.values()[0], 1 + 9 + 1);
  EXPECT_EQ(gram.values()[1], 2 + 12 - 1);
  EXPECT_EQ(gram.values()[3], 4 + 16 + 1);
}

// Rows along (3, -4) / 5 and, shorter, (4, 3) / 5.
TEST(ShadowLowRank, TheLargestComesFirstWithItsSign) {
  GramMatrix gram(2);
  gram.Add(std::vector<float>{3, -4, -6, 8, 4, 3});
  const LowRankBasis basis = FindBasis(gram, OfRank(2), true);
  ASSERT_EQ(basis.rank, 2u);
  EXPECT_EQ(basis.vectors,
            (std::vector<uint16_t>{ToF16(-0.6F), ToF16(0.8F), ToF16(0.8F), ToF16(0.6F)}));
  std::vector<uint16_t> u(2), row(2);
  FindCoefficients(basis, std::vector<float>{-6, 8}, u);
  EXPECT_NEAR(FromF16(u[0]), 10, 0.02);
  EXPECT_NEAR(FromF16(u[1]), 0, 0.02);
  RebuildRow(basis, u, 0, row);
  EXPECT_NEAR(FromF16(row[0]), -6, 0.02);
  EXPECT_NEAR(FromF16(row[1]), 8, 0.02);
  std::vector<uint16_t> second(1);
  RebuildRow(basis, u, 1, second);
  EXPECT_EQ(second[0], row[1]);
}

// Energies: 125 and 25 of 150.
TEST(ShadowLowRank, EnergyChoosesTheFewest) {
  GramMatrix gram(2);
  gram.Add(std::vector<float>{3, -4, -6, 8, 4, 3});
  EXPECT_EQ(FindBasis(gram, OfEnergy(0.1), false).rank, 1u);
  EXPECT_EQ(FindBasis(gram, OfEnergy(0.83), false).rank, 1u);
  EXPECT_EQ(FindBasis(gram, OfEnergy(0.84), false).rank, 2u);
  EXPECT_EQ(FindBasis(gram, OfEnergy(1.0), false).rank, 2u);
  EXPECT_EQ(FindBasis(GramMatrix(4), OfEnergy(0.9), false).rank, 1u);  // All zeros.
}

TEST(ShadowLowRank, CoefficientsStayFinite) {
  GramMatrix gram(4);
  const std::vector<float> row(4, 32767.0F);
  gram.Add(row);
  const LowRankBasis basis = FindBasis(gram, OfRank(1), true);
  std::vector<uint16_t> u(1);
  FindCoefficients(basis, row, u);
  EXPECT_EQ(FromF16(u[0]), 65504.0F);  // Not 65534, which rounds to infinity.
}

// Two heads of 16 channels whose keys lie in 5 directions, stored in bf16 and rotated.
TEST(ShadowLowRank, KeysComeBackThroughRotation) {
  constexpr uint32_t kHeads = 2, kWidth = 16, kChannels = kHeads * kWidth, kRank = 5;
  LayerGroup group = LayerGroup::FullAttention(1, kHeads, kWidth, Dtype::kBf16);
  group.inv_freq = RotaryFrequencies(kWidth, 10000.0);
  LayerGroup in_fp32 = LayerGroup::FullAttention(1, kHeads, kWidth, Dtype::kF32);
  in_fp32.inv_freq = group.inv_freq;
  const Result<Rotation> rotation = Rotation::Of(group, 0), wide = Rotation::Of(in_fp32, 0);
  ASSERT_TRUE(rotation.ok() && wide.ok());
  std::vector<RotaryTurn> turns(rotation->pairs());
  const auto turn = [&turns](const Rotation& by, uint64_t from, uint64_t to, auto row) {
    by.Between({&from, 1}, {&to, 1}, turns);
    by.Turn(turns, std::as_bytes(row), std::as_writable_bytes(row));
  };
  SeededRandom random(5);
  std::vector<float> directions(kRank * kChannels);
  for (float& x : directions) x = static_cast<float>(random.Fraction() - 0.5);
  std::vector<std::vector<uint16_t>> stored;
  std::vector<std::vector<float>> before;  // Turned back to position 0, from what was stored.
  GramMatrix gram(kChannels);
  for (uint64_t position = 0; position < 300; ++position) {
    std::vector<float> row(kChannels);
    for (uint32_t r = 0; r < kRank; ++r) {
      const auto factor = static_cast<float>(random.Fraction() - 0.5);
      for (uint32_t c = 0; c < kChannels; ++c) row[c] += factor * directions[r * kChannels + c];
    }
    std::vector<uint16_t> key(kChannels);
    for (uint32_t c = 0; c < kChannels; ++c) key[c] = ToBf16(row[c]);
    for (uint32_t h = 0; h < kHeads; ++h) {
      turn(*rotation, 0, position, std::span(key).subspan(h * kWidth, kWidth));
    }
    Widen(false, key, row);
    for (uint32_t h = 0; h < kHeads; ++h) {
      turn(*wide, position, 0, std::span(row).subspan(h * kWidth, kWidth));
    }
    gram.Add(row);
    stored.push_back(key);
    before.push_back(row);
  }
  const LowRankBasis basis = FindBasis(gram, OfRank(kRank), false);
  EXPECT_EQ(FindBasis(gram, OfEnergy(0.999), false).rank, kRank);
  std::vector<uint16_t> u(kRank), row(kWidth);
  for (uint64_t position = 0; position < stored.size(); ++position) {
    FindCoefficients(basis, before[position], u);
    for (uint32_t h = 0; h < kHeads; ++h) {
      RebuildRow(basis, u, h * kWidth, row);
      turn(*rotation, 0, position, std::span(row));
      for (uint32_t c = 0; c < kWidth; ++c) {
        // A few roundings to bf16, of numbers up to 1.
        EXPECT_NEAR(FromBf16(row[c]), FromBf16(stored[position][h * kWidth + c]), 0.02);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::shadow
