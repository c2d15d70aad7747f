// SPDX-License-Identifier: Apache-2.0
//
// Property: Exp and Log are within 1.1 ulp; sums have the order that docs/shadow.md gives;
// roundings are those of the formats. Method: double as the judge, over drawn floats of all
// exponents and every 16-bit number; sums of which each order has another result.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/core/seeded_random.h"
#include "base/shadow/row_math.h"
#include "tests/support/test_seed.h"

namespace cairn::shadow {
namespace {

// How far `is` lies from `truth`, in units of the last place of the float next to it.
double Ulps(float is, double truth) {
  const auto nearest = static_cast<float>(truth);
  const float next = std::nextafter(std::fabs(nearest), std::numeric_limits<float>::infinity());
  return std::fabs(static_cast<double>(is) - truth) /
         (static_cast<double>(next) - std::fabs(static_cast<double>(nearest)));
}

TEST(ShadowMath, ExpIsThatOfDouble) {
  double worst = 0;
  for (int32_t i = -870'000; i <= 880'000; ++i) {
    const float x = static_cast<float>(i) * 1e-4F;
    worst = std::max(worst, Ulps(Exp(x), std::exp(static_cast<double>(x))));
  }
  SeededRandom random(testing::QuickTestSeed());
  for (int i = 0; i < 500'000; ++i) {  // Draws from all magnitudes.
    const auto x = static_cast<float>(
        std::ldexp(random.Fraction() - 0.5, static_cast<int>(random.Below(40)) - 32));
    if (x >= -87.0F && x <= 88.0F) {
      worst = std::max(worst, Ulps(Exp(x), std::exp(static_cast<double>(x))));
    }
  }
  EXPECT_LE(worst, 1.1);
  EXPECT_EQ(Exp(0.0F), 1.0F);
  EXPECT_EQ(Exp(-87.5F), 0.0F);
  EXPECT_EQ(Exp(-kInfinity), 0.0F);
  EXPECT_EQ(Exp(std::numeric_limits<float>::quiet_NaN()), 0.0F);
  EXPECT_EQ(Exp(kInfinity), Exp(88.0F));
}

TEST(ShadowMath, LogIsThatOfDouble) {
  double worst = 0;
  SeededRandom random(testing::QuickTestSeed());
  for (int i = 0; i < 1'000'000; ++i) {
    const int exponent = i % 2 == 0 ? static_cast<int>(random.Below(250)) - 125
                                    : static_cast<int>(random.Below(3)) - 1;
    const auto x = static_cast<float>(std::ldexp(1.0 + random.Fraction(), exponent));
    worst = std::max(worst, Ulps(Log(x), std::log(static_cast<double>(x))));
  }
  for (int i = -1000; i <= 1000; ++i) {  // Around 1.
    const float x = 1.0F + static_cast<float>(i) * 0x1p-23F;
    if (x != 1.0F) worst = std::max(worst, Ulps(Log(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(Log(1.0F), 0.0F);
  EXPECT_EQ(Log(0.0F), -kInfinity);
  EXPECT_EQ(Log(-1.0F), -kInfinity);
  EXPECT_EQ(Log(std::numeric_limits<float>::quiet_NaN()), -kInfinity);
}

TEST(ShadowMath, SumsHaveTheOrderOfLanes) {
  SeededRandom random(testing::QuickTestSeed());
  for (const uint32_t count : {0u, 1u, 31u, 32u, 33u, 64u, 80u, 96u, 128u, 256u}) {
    std::vector<float> x(count);
    for (float& one : x) {
      one = static_cast<float>(
          std::ldexp(random.Fraction() - 0.5, static_cast<int>(random.Below(30))));
    }
    // As a warp does it: every lane adds what the lane `apart` from it has.
    std::vector<float> lanes(32);
    for (uint32_t i = 0; i < count; ++i) lanes[i % 32] += x[i];
    for (uint32_t apart : {16u, 8u, 4u, 2u, 1u}) {
      std::vector<float> next(32);
      for (uint32_t lane = 0; lane < 32; ++lane) next[lane] = lanes[lane] + lanes[lane ^ apart];
      lanes = next;
    }
    const float sum = WarpSum(count, [&](uint32_t i) { return x[i]; });
    for (const float lane : lanes) EXPECT_EQ(BitsOfFloat(sum), BitsOfFloat(lane)) << count;
  }
  // 2^24 and 1 in one lane lose the 1; in lanes of their own, too; but 16 apart ones meet first.
  std::vector<float> x(33, 0.0F);
  x[0] = 0x1p24F;
  x[1] = x[17] = 1.0F;
  EXPECT_EQ(WarpSum(33, [&](uint32_t i) { return x[i]; }), 0x1p24F + 2.0F);
  x[17] = 0.0F;
  x[32] = 1.0F;
  EXPECT_EQ(WarpSum(33, [&](uint32_t i) { return x[i]; }), 0x1p24F);
}

TEST(ShadowMath, OrderedBitsHaveTheOrderOfFloats) {
  const float rising[] = {-kInfinity, -3.0F, -1.0F, -0x1p-149F, 0.0F, 0x1p-149F, 1.0F, kInfinity};
  uint32_t before = 0;
  for (const float value : rising) {
    EXPECT_GT(OrderedBits(value), before) << value;
    before = OrderedBits(value);
  }
  EXPECT_EQ(OrderedBits(-0.0F), OrderedBits(0.0F));
}

TEST(ShadowMath, MaxTakesNoNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Max(-kInfinity, nan), -kInfinity);
  EXPECT_EQ(Max(1.0F, 2.0F), 2.0F);
  EXPECT_EQ(Max(2.0F, 1.0F), 2.0F);
}

TEST(Float16, EveryNumberComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (const bool fp16 : {false, true}) {
      const float value = Widened(fp16, static_cast<uint16_t>(bits));
      if (value == value) {
        EXPECT_EQ(Narrowed(fp16, value), bits);
      } else {
        EXPECT_TRUE(std::isnan(Widened(fp16, Narrowed(fp16, value))));
      }
    }
  }
}

TEST(Float16, HalfwayRoundsToTheEvenNeighbour) {
  for (const bool fp16 : {false, true}) {
    const uint32_t infinity = fp16 ? 0x7C00 : 0x7F80;
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const float low = Widened(fp16, static_cast<uint16_t>(bits));
      const float high = Widened(fp16, static_cast<uint16_t>(bits + 1));
      const float middle = 0.5F * low + 0.5F * high;  // Exact: both types have bits to spare.
      EXPECT_EQ(Narrowed(fp16, middle), bits + bits % 2);
      EXPECT_EQ(Narrowed(fp16, std::nextafter(middle, low)), bits);
      EXPECT_EQ(Narrowed(fp16, std::nextafter(middle, high)), bits + 1);
      EXPECT_EQ(Narrowed(fp16, -middle), 0x8000 + bits + bits % 2);
    }
  }
}

TEST(Float16, RoundedToIsNarrowedAndWidened) {
  SeededRandom random(testing::QuickTestSeed());
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = FloatOfBits(static_cast<uint32_t>(random.Next()));
    for (const bool fp16 : {false, true}) {
      const float expected = Widened(fp16, Narrowed(fp16, value));
      if (!std::isfinite(expected)) continue;
      ASSERT_EQ(BitsOfFloat(RoundedTo(fp16, value)), BitsOfFloat(expected)) << value;
    }
  }
  for (uint32_t bits = 0; bits < 0x8000; ++bits) {  // Halfway and around, as far as fp16 goes.
    const float low = FromF16(static_cast<uint16_t>(bits));
    const float high = FromF16(static_cast<uint16_t>(bits + 1));
    const float middle = 0.5F * low + 0.5F * high;
    for (const float value : {low, middle, std::nextafter(middle, low)}) {
      const float expected = FromF16(ToF16(value));
      if (!std::isfinite(expected)) continue;
      ASSERT_EQ(BitsOfFloat(RoundedTo(true, value)), BitsOfFloat(expected)) << value;
      ASSERT_EQ(BitsOfFloat(RoundedTo(true, -value)), BitsOfFloat(-expected)) << value;
    }
  }
}

}  // namespace
}  // namespace cairn::shadow
