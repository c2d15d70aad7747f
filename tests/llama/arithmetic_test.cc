// SPDX-License-Identifier: Apache-2.0
//
// Property: the arithmetic rounds as its headers say and sums in the order they state. Method: bf16
// against the nearest of its two neighbours, over every bf16 value and random floats; Exp against
// the C library; the vectorised sums, bit for bit, against plain loops in the stated order, for
// awkward sizes.

#include "tools/llama/arithmetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tools/llama/bf16.h"

namespace cairn::llama {
namespace {

TEST(Bf16, EveryValueSurvivesWidening) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float wide = FloatFromBf16(static_cast<uint16_t>(bits));
    const uint16_t back = Bf16FromFloat(wide);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(FloatFromBf16(back)));
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

TEST(Bf16, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(Bf16FromFloat(0x1.01p0f), 0x3f80);    // halfway between 1 and the next: 1 is even
  EXPECT_EQ(Bf16FromFloat(0x1.03p0f), 0x3f82);    // halfway between an odd and an even one
  EXPECT_EQ(Bf16FromFloat(0x1.0102p0f), 0x3f81);  // a little above halfway
  EXPECT_EQ(Bf16FromFloat(0x1.00fep0f), 0x3f80);  // a little below
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);  // overflows to infinity
  EXPECT_EQ(Bf16FromFloat(-0.0f), 0x8000);
}

TEST(Bf16, ANanWhosePayloadIsCutOffStaysANan) {
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(0xffffffffu)))));
}

TEST(Bf16, RoundsToTheNearer) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 100000; ++i) {
    const float value = normal(generator);
    const uint16_t below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    const double down = std::abs(double{value} - double{FloatFromBf16(below)});
    const double up =
        std::abs(double{FloatFromBf16(static_cast<uint16_t>(below + 1))} - double{value});
    const double error = std::abs(double{FloatFromBf16(Bf16FromFloat(value))} - double{value});
    ASSERT_EQ(error, std::min(down, up)) << value;
  }
}

TEST(Exp, IsCloseToTheCLibrary) {
  double worst_float = 0;
  double worst_double = 0;
  for (double x = -86; x < 88; x += 0.00137) {
    const float narrow = static_cast<float>(x);
    const double exact = std::exp(double{narrow});
    worst_float = std::max(worst_float, std::abs(double{Exp(narrow)} / exact - 1));
    worst_double = std::max(worst_double, std::abs(Exp(x * 8) / std::exp(x * 8) - 1));
  }
  EXPECT_LT(worst_float, 2 * double{std::numeric_limits<float>::epsilon()});
  EXPECT_LT(worst_double, 2 * std::numeric_limits<double>::epsilon());
}

TEST(Exp, EndsAreExact) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-1000.0f), 0.0f);
  EXPECT_EQ(Exp(-10000.0), 0.0);
  EXPECT_TRUE(std::isfinite(Exp(1000.0f)));  // held at e^88: silu divides by it
}

template <typename Scalar>
std::vector<Scalar> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<Scalar> normal;
  std::vector<Scalar> values(count);
  for (Scalar& value : values) {
    value = normal(generator);
  }
  return values;
}

template <typename Scalar>
class SumsTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SumsTest, Scalars);

TYPED_TEST(SumsTest, DotProductFoldsEightPartialSums) {
  for (const size_t count : {1u, 2u, 7u, 8u, 9u, 16u, 63u, 64u, 200u}) {
    const std::vector<TypeParam> a = RandomValues<TypeParam>(count, 1);
    const std::vector<TypeParam> b = RandomValues<TypeParam>(count, 2);
    TypeParam l[8] = {};
    for (size_t i = 0; i < count; ++i) {
      l[i % 8] += a[i] * b[i];
    }
    const TypeParam folded = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
    EXPECT_EQ(DotProduct(a.data(), b.data(), count), folded) << count;
    const std::vector<TypeParam> ones(count, 1);
    EXPECT_EQ(Sum(a.data(), count), DotProduct(a.data(), ones.data(), count)) << count;
  }
}

TYPED_TEST(SumsTest, MatrixSumsInAscendingOrderWhateverTheNumberOfRows) {
  for (const size_t outputs : {1u, 15u, 16u, 17u, 40u}) {
    for (const size_t inputs : {1u, 8u, 33u}) {
      const std::vector<float> weights = RandomValues<float>(outputs * inputs, 3);
      const Matrix<TypeParam> matrix(weights, outputs, inputs);
      for (const size_t rows : {1u, 2u, 3u, 6u}) {
        const std::vector<TypeParam> x = RandomValues<TypeParam>(rows * inputs, 4);
        std::vector<TypeParam> out(rows * outputs + 1, 99);
        matrix.Multiply(x.data(), rows, out.data());
        for (size_t row = 0; row < rows; ++row) {
          for (size_t output = 0; output < outputs; ++output) {
            TypeParam sum = 0;
            for (size_t input = 0; input < inputs; ++input) {
              sum += x[row * inputs + input] * TypeParam{weights[output * inputs + input]};
            }
            ASSERT_EQ(out[row * outputs + output], sum) << row << " " << output;
          }
        }
        EXPECT_EQ(out.back(), 99) << "written beyond the end";
      }
    }
  }
}

TYPED_TEST(SumsTest, APartOfAMatrixTouchesNothingElse) {
  const size_t outputs = 37, inputs = 21, rows = 3, x_stride = 25, out_stride = 40;
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const std::vector<float> weights = RandomValues<float>(outputs * inputs, 5);
  const std::vector<TypeParam> x = RandomValues<TypeParam>(rows * x_stride, 6);
  for (const size_t used_outputs : {1u, 16u, 20u}) {
    for (const size_t used_inputs : {1u, 20u}) {
      Matrix<TypeParam> matrix(weights, outputs, inputs);
      for (size_t input = used_inputs; input < inputs; ++input) {
        for (size_t output = 0; output < outputs; ++output) {
          matrix.At(output, input) = nan;
        }
      }
      std::vector<TypeParam> out(rows * out_stride, 99);
      matrix.MultiplyPart(x.data(), x_stride, rows, used_outputs, used_inputs, out.data(),
                          out_stride);
      for (size_t i = 0; i < out.size(); ++i) {
        TypeParam sum = 0;
        for (size_t input = 0; input < used_inputs && i % out_stride < outputs; ++input) {
          sum += x[i / out_stride * x_stride + input] *
                 TypeParam{weights[i % out_stride * inputs + input]};
        }
        ASSERT_EQ(out[i], i % out_stride < used_outputs ? sum : TypeParam{99}) << i;
      }
    }
  }
}

TYPED_TEST(SumsTest, SoftmaxIsAProbabilityDistribution) {
  std::vector<TypeParam> scores = {-1000, 0, 3, 2, -5, 3, 1, 0.5};
  const std::vector<TypeParam> before = scores;
  Softmax(scores.data(), scores.size());
  double sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    sum += double{scores[i]};
    EXPECT_NEAR(double{scores[i] / scores[2]}, std::exp(double{before[i]} - 3), 1e-6);
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

}  // namespace
}  // namespace cairn::llama
