// SPDX-License-Identifier: Apache-2.0
//
// Property: a table turns many rows to the bits that base/codec/rotary.h gives them one by one, on
// every code path, whatever the rows hold: all types, pairings, windows, sections, scales, shifts
// and strides; what lies between rows is not touched. Method: rows of random bits, with NaN,
// infinities, subnormals and zeros among them, against Rotation::Turn; and a plain formula for
// RotateKeys, so that leaving the rotation out fails.
#include "base/codec/rotary_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "base/codec/cos_sin.h"
#include "tests/support/status.h"

namespace cairn {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xA5};

std::vector<RotaryPath> Paths() {
  std::vector<RotaryPath> paths = {RotaryPath::kScalar};
  for (const RotaryPath path : {RotaryPath::kAvx2, RotaryPath::kAvx512}) {
    if (RotaryPathSupported(path)) paths.push_back(path);
  }
  return paths;
}

// Any bits; every fourth element is one of those that rounding and conversions stumble over.
void FillRow(Dtype dtype, std::byte* row, size_t elements, ptrdiff_t stride,
             std::mt19937_64* random) {
  constexpr uint32_t kF32[] = {0x7FC12345, 0xFFA00001, 0x7F800000, 0xFF800000, 0x80000000, 0,
                               1,          0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x3F800000};
  constexpr uint16_t kF16[] = {0x7E35, 0xFD01, 0x7C00, 0xFC00, 0x8000, 0,
                               1,      0x83FF, 0x0400, 0x7BFF, 0x3C00};
  constexpr uint16_t kBf16[] = {0x7FC5, 0xFFA1, 0x7F80, 0xFF80, 0x8000, 0,
                                1,      0x807F, 0x0080, 0x7F7F, 0x3F80};
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t drawn = (*random)();
    const size_t special = drawn >> 32 & 63;
    std::byte* const at = row + static_cast<ptrdiff_t>(i) * stride;
    std::memcpy(at, &drawn, DtypeBytes(dtype));
    if (special >= std::size(kF32)) continue;
    if (dtype == Dtype::kF32) std::memcpy(at, &kF32[special], 4);
    if (dtype == Dtype::kF16) std::memcpy(at, &kF16[special], 2);
    if (dtype == Dtype::kBf16) std::memcpy(at, &kBf16[special], 2);
  }
}

LayerGroup GroupOf(Dtype dtype, uint32_t elements, const RotarySpec& rotary,
                   std::vector<float> inv_freq, float mscale = 1.0F) {
  LayerGroup group = LayerGroup::FullAttention(1, 1, elements, dtype);
  group.planes[0].rotary = rotary;
  group.inv_freq = std::move(inv_freq);
  group.mscale = mscale;
  return group;
}

// Rows of a stretch in memory of their own, element_gap elements apart.
struct Stretch {
  Stretch(Dtype dtype, size_t rows_of, size_t head_count, size_t row_elements, size_t element_gap)
      : element_bytes(DtypeBytes(dtype)),
        elements(row_elements),
        heads(head_count),
        element_stride(static_cast<ptrdiff_t>(element_bytes * element_gap)),
        head_stride(element_stride * static_cast<ptrdiff_t>(elements) + 3),
        token_stride(head_stride * static_cast<ptrdiff_t>(heads) + 5),
        bytes(static_cast<size_t>(token_stride) * rows_of + 1, kUntouched) {}
  template <typename Byte>
  RotaryRows<Byte> rows() {
    return {bytes.data() + 1, token_stride, head_stride, element_stride};
  }
  std::byte* row(size_t token, size_t head) {
    return bytes.data() + 1 + static_cast<ptrdiff_t>(token) * token_stride +
           static_cast<ptrdiff_t>(head) * head_stride;
  }
  Bytes dense(size_t token, size_t head) {
    Bytes out(elements * element_bytes);
    for (size_t i = 0; i < elements; ++i) {
      std::memcpy(out.data() + i * element_bytes,
                  row(token, head) + static_cast<ptrdiff_t>(i) * element_stride, element_bytes);
    }
    return out;
  }
  void put(size_t token, size_t head, const Bytes& dense_row) {
    for (size_t i = 0; i < elements; ++i) {
      std::memcpy(row(token, head) + static_cast<ptrdiff_t>(i) * element_stride,
                  dense_row.data() + i * element_bytes, element_bytes);
    }
  }

  size_t element_bytes, elements, heads;
  ptrdiff_t element_stride, head_stride, token_stride;
  Bytes bytes;
};

struct Case {
  Dtype dtype{};
  uint32_t elements = 0;
  RotarySpec rotary{};
  float mscale = 1.0F;
  size_t gap = 1;  // From element to element.

  std::string name() const {
    return std::string(DtypeName(dtype)) + " " + RotaryPairingName(rotary.pairing) + " [" +
           std::to_string(rotary.first) + ", +" + std::to_string(rotary.width) + ") of " +
           std::to_string(elements) + ", sections " + std::to_string(rotary.sections.size()) +
           (rotary.interleaved ? " interleaved" : "") + ", stride " + std::to_string(gap);
  }
};

// From and to; of sections those below, a little apart.
constexpr std::pair<uint64_t, uint64_t> kMoves[] = {
    {7, 7}, {0, 1}, {9'000, 12}, {12, 131'072}, {uint64_t{1} << 40, 3}, {5, 1'048'577}};
constexpr size_t kHeads = 3;

class RotaryTableTest : public ::testing::TestWithParam<Dtype> {
 protected:
  void ExpectAsRowByRow(const Case& one) {
    SCOPED_TRACE(one.name());
    LayerGroup group = GroupOf(one.dtype, one.elements, one.rotary,
                               RotaryFrequencies(one.rotary.width, 10'000.0), one.mscale);
    ASSERT_OK_ASSIGN(const Rotation rotation, Rotation::Of(group, 0));
    std::vector<uint64_t> from, to;
    for (const auto& [a, b] : kMoves) {
      for (uint64_t i = 0; i < rotation.positions(); ++i) {
        from.push_back(a + i % 2);
        to.push_back(b + i % 3);
      }
    }
    const size_t tokens = std::size(kMoves);
    Stretch rows(one.dtype, tokens, kHeads, one.elements, one.gap);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t h = 0; h < kHeads; ++h) {
        FillRow(one.dtype, rows.row(t, h), one.elements, rows.element_stride, &random_);
      }
    }
    const bool before = one.rotary.state == RotaryState::kBefore;
    Stretch want = rows, apart(one.dtype, tokens, kHeads, one.elements, 1);
    std::vector<RotaryTurn> turns(rotation.pairs());
    for (size_t t = 0; t < tokens; ++t) {
      const auto of = [&](const std::vector<uint64_t>& all) {
        return std::span(all).subspan(t * rotation.positions(), rotation.positions());
      };
      before ? rotation.At(of(to), turns) : rotation.Between(of(from), of(to), turns);
      for (size_t h = 0; h < kHeads; ++h) {
        Bytes turned = rows.dense(t, h);
        rotation.Turn(turns, turned, turned);
        want.put(t, h, turned);
        apart.put(t, h, turned);
      }
    }
    for (const RotaryPath path : Paths()) {
      SCOPED_TRACE(RotaryPathName(path));
      RotaryTable table(rotation, tokens, path);
      before ? table.SetAt(to) : table.SetBetween(from, to);
      ASSERT_EQ(tokens, table.tokens());
      Stretch in_place = rows, elsewhere(one.dtype, tokens, kHeads, one.elements, 1);
      // In two parts, of which the second begins within the table.
      const auto turn = [&](size_t first, size_t count, Stretch& a, Stretch& b) {
        auto source = a.rows<const std::byte>();
        auto target = b.rows<std::byte>();
        source.data += static_cast<ptrdiff_t>(first) * source.token_stride;
        target.data += static_cast<ptrdiff_t>(first) * target.token_stride;
        table.Turn(first, count, kHeads, source, target);
      };
      turn(0, 2, rows, elsewhere);
      turn(2, tokens - 2, rows, elsewhere);
      EXPECT_TRUE(elsewhere.bytes == apart.bytes);
      turn(0, tokens, in_place, in_place);
      EXPECT_TRUE(in_place.bytes == want.bytes);
    }
  }

  std::mt19937_64 random_{1};
};
INSTANTIATE_TEST_SUITE_P(Types, RotaryTableTest,
                         ::testing::Values(Dtype::kF32, Dtype::kF16, Dtype::kBf16),
                         [](const auto& param) { return std::string(DtypeName(param.param)); });

TEST_P(RotaryTableTest, EqualsRowByRowBitForBitOnEveryPath) {
  for (const RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kAdjacent}) {
    // Windows that fill vectors, and every tail.
    for (uint32_t width = 2; width <= 140; width += width < 70 ? 2 : 18) {
      for (const RotaryState state : {RotaryState::kApplied, RotaryState::kBefore}) {
        for (const uint32_t outside : {0u, 5u}) {
          Case one{.dtype = GetParam(), .elements = width + 2 * outside};
          one.rotary = {.state = state, .pairing = pairing, .first = outside, .width = width};
          one.mscale = state == RotaryState::kBefore && outside != 0 ? 1.3F : 1.0F;
          ASSERT_NO_FATAL_FAILURE(ExpectAsRowByRow(one));
          one.gap = 2;
          if (outside != 0) {
            ASSERT_NO_FATAL_FAILURE(ExpectAsRowByRow(one));
          }
        }
      }
    }
  }
}

// Some pairs of a token turn, others do not, and then keep their bits.
TEST_P(RotaryTableTest, SectionsEqualRowByRowBitForBitOnEveryPath) {
  for (const RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kAdjacent}) {
    for (const bool interleaved : {false, true}) {
      for (const uint32_t width : {12u, 96u, 128u, 140u}) {
        const uint32_t pairs = width / 2, third = pairs / 3;
        Case one{.dtype = GetParam(), .elements = width};
        one.rotary = {.state = RotaryState::kApplied,
                      .pairing = pairing,
                      .width = width,
                      .sections = {pairs - 2 * third, third, third},
                      .interleaved = interleaved};
        ASSERT_NO_FATAL_FAILURE(ExpectAsRowByRow(one));
      }
    }
  }
}

// --- Cosines and sines

// Angles of all sizes up to the largest, of both signs, and those at which quarters change.
std::vector<double> Angles() {
  std::mt19937_64 random(3);
  std::vector<double> angles = {0.0, kLargestAngle, -kLargestAngle};
  for (int i = 0; i < 50'000; ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(random() % 40) - 20);
    angles.push_back(static_cast<double>(static_cast<float>(random() % 2'000'001) - 1e6F) / 1e6 *
                     std::min(size, kLargestAngle));
    const double quarter = static_cast<double>(random() % 300'000) * std::numbers::pi / 2;
    angles.push_back(static_cast<double>(static_cast<float>(quarter)));
  }
  return angles;
}

TEST(CosSinTest, AreRoundedOnceAndTheSameOnEveryPath) {
  const std::vector<double> angles = Angles();
  const size_t count = angles.size();
  std::vector<float> cosines(count), sines(count);
  internal::CosSinScalar(angles.data(), count, cosines.data(), sines.data());
  for (size_t i = 0; i < count; ++i) {
    const double c = std::cos(angles[i]), s = std::sin(angles[i]);
    // Half a unit in the last place, and what the error before rounding can add.
    ASSERT_LE(std::abs(double{cosines[i]} - c), 0x1.0001p-24 * std::abs(c)) << angles[i];
    ASSERT_LE(std::abs(double{sines[i]} - s), 0x1.0001p-24 * std::abs(s)) << angles[i];
  }
  EXPECT_EQ(1.0F, cosines[0]);
  EXPECT_EQ(0.0F, sines[0]);
#if defined(__x86_64__)
  for (const RotaryPath path : {RotaryPath::kAvx2, RotaryPath::kAvx512}) {
    if (!RotaryPathSupported(path)) continue;
    std::vector<float> c = cosines, s = sines;
    std::fill(c.begin(), c.end(), 7.0F);
    std::fill(s.begin(), s.end(), 7.0F);
    const auto turn = path == RotaryPath::kAvx2 ? internal::CosSinAvx2 : internal::CosSinAvx512;
    const size_t done = turn(angles.data(), count, c.data(), s.data());
    EXPECT_GT(done, count - 8);
    EXPECT_EQ(0, std::memcmp(c.data(), cosines.data(), done * sizeof(float)));
    EXPECT_EQ(0, std::memcmp(s.data(), sines.data(), done * sizeof(float)));
    EXPECT_TRUE(done == count || (c[done] == 7.0F && s[done] == 7.0F));
  }
#endif
}

// Among others, in any place.
TEST(CosSinTest, LargeAnglesAreLeftToLibm) {
  const double angles[] = {1.0, 1e6, 2.0, -3e9, 1e300, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1e7};
  constexpr size_t kCount = std::size(angles);
  float cosines[kCount], sines[kCount];
  CosSin(angles, cosines, sines);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(std::cos(angles[i])), cosines[i]);
    EXPECT_FLOAT_EQ(static_cast<float>(std::sin(angles[i])), sines[i]);
  }
  const double infinite = INFINITY;
  CosSin({&infinite, 1}, cosines, sines);
  EXPECT_TRUE(std::isnan(cosines[0]) && std::isnan(sines[0]));
}

TEST(RotaryTablePathsTest, TheBestOneOfTheProcessorIsTaken) {
  EXPECT_TRUE(RotaryPathSupported(RotaryPath::kScalar));
  EXPECT_EQ(Paths().back(), BestRotaryPath());
  EXPECT_STREQ("scalar", RotaryPathName(RotaryPath::kScalar));
  EXPECT_STREQ("avx2", RotaryPathName(RotaryPath::kAvx2));
  EXPECT_STREQ("avx512", RotaryPathName(RotaryPath::kAvx512));
  EXPECT_STREQ("unknown", RotaryPathName(RotaryPath{9}));
}

// --- RotateKeys

constexpr uint32_t kWidth = 8;

LayerGroup TwoHeads(Dtype dtype = Dtype::kF32) {
  LayerGroup group = LayerGroup::FullAttention(3, 2, kWidth, dtype);
  group.inv_freq = RotaryFrequencies(kWidth, 100.0);
  return group;
}

// The pair i of a row of fp32, as it should be at another position.
void ExpectTurned(const float* row, const float* got, const LayerGroup& group, double from,
                  double to) {
  for (size_t i = 0; i < kWidth / 2; ++i) {
    const double angle = (to - from) * double{group.inv_freq[i]};
    const double x = double{row[i]}, y = double{row[i + kWidth / 2]};
    EXPECT_NEAR(x * std::cos(angle) - y * std::sin(angle), double{got[i]}, 1e-3);
    EXPECT_NEAR(y * std::cos(angle) + x * std::sin(angle), double{got[i + kWidth / 2]}, 1e-3);
  }
}

// Without the rotation no pair of these is right.
TEST(RotateKeysTest, KeysAreWhereTheyAreWantedInAllLayersAndHeads) {
  const LayerGroup group = TwoHeads();
  constexpr size_t kTokens = 600, kLayers = 3, kRows = kTokens * kLayers * 2;  // Several tables.
  std::vector<float> rows(kRows * kWidth), into(rows.size());
  std::mt19937_64 random(1);
  for (float& one : rows) one = static_cast<float>(random() % 1000) / 100 - 5;
  std::vector<uint64_t> from, to;
  for (size_t t = 0; t < kTokens; ++t) {
    from.push_back(random() % 1'000);
    to.push_back(random() % 1'000);
  }
  KeyRotation rotation{.layers = kLayers,
                       .from = from,
                       .to = to,
                       .rows = std::as_bytes(std::span(rows)),
                       .into = std::as_writable_bytes(std::span(into))};
  ASSERT_OK(RotateKeys(group, rotation));
  const auto at = [&](size_t layer, size_t token, size_t head) {
    return ((layer * kTokens + token) * 2 + head) * kWidth;
  };
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t head = 0; head < 2; ++head) {
        const size_t row = at(layer, t, head);
        ExpectTurned(&rows[row], &into[row], group, static_cast<double>(from[t]),
                     static_cast<double>(to[t]));
        ASSERT_FALSE(::testing::Test::HasFailure()) << t;
      }
    }
  }
  // In place, and from [layer][head][token] to a dense copy.
  std::vector<float> in_place = rows, other(rows.size()), back(rows.size());
  rotation.rows = std::as_bytes(std::span(in_place));
  rotation.into = std::as_writable_bytes(std::span(in_place));
  ASSERT_OK(RotateKeys(group, rotation));
  EXPECT_TRUE(in_place == into);
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t head = 0; head < 2; ++head) {
        std::copy_n(&rows[at(layer, t, head)], kWidth,
                    &other[((layer * 2 + head) * kTokens + t) * kWidth]);
      }
    }
  }
  rotation.rows = std::as_bytes(std::span(other));
  rotation.into = std::as_writable_bytes(std::span(back));
  rotation.row_strides = {
      .layer = 2 * kTokens * kWidth * 4, .token = kWidth * 4, .head = kTokens * kWidth * 4};
  ASSERT_OK(RotateKeys(group, rotation));
  EXPECT_TRUE(back == into);
}

TEST(RotateKeysTest, WhatIsStoredBeforeRotationBecomesTheEnginesKey) {
  LayerGroup group = TwoHeads();
  group.planes[0].rotary.state = RotaryState::kBefore;
  group.mscale = 2.0F;
  std::vector<float> rows(2 * kWidth), into(rows.size()), scaled;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i) - 4;
  for (const float one : rows) scaled.push_back(2 * one);
  const uint64_t to[] = {77};
  KeyRotation rotation{.to = to,
                       .rows = std::as_bytes(std::span(rows)),
                       .into = std::as_writable_bytes(std::span(into))};
  ASSERT_OK(RotateKeys(group, rotation));
  ExpectTurned(scaled.data(), into.data(), group, 0, 77);
  ExpectTurned(&scaled[kWidth], &into[kWidth], group, 0, 77);
  rotation.from = to;
  EXPECT_FAILS(RotateKeys(group, rotation), StatusCode::kInvalidArgument,
               "from has 1 positions, not 0: rows of this plane are stored before rotation");
}

// Elements [token][element][head]: strided in any order.
TEST(RotateKeysTest, ElementsMayLieApart) {
  const LayerGroup group = TwoHeads(Dtype::kBf16);
  std::vector<uint16_t> rows(2 * 2 * kWidth), mixed(rows.size()), want(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(0x3F80 + 5 * i);
  const uint64_t from[] = {1, 2}, to[] = {60, 5};
  KeyRotation rotation{.from = from,
                       .to = to,
                       .rows = std::as_bytes(std::span(rows)),
                       .into = std::as_writable_bytes(std::span(want))};
  ASSERT_OK(RotateKeys(group, rotation));
  rotation.into = std::as_writable_bytes(std::span(mixed));
  rotation.into_strides = {.token = 4 * kWidth, .head = 2, .element = 4};
  ASSERT_OK(RotateKeys(group, rotation));
  for (size_t t = 0; t < 2; ++t) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t e = 0; e < kWidth; ++e) {
        EXPECT_EQ(want[(t * 2 + h) * kWidth + e], mixed[(t * kWidth + e) * 2 + h]);
      }
    }
  }
}

// It was compared with the other, and pointers moved by it.
TEST(RotateKeysTest, AStrideThatLeadsNowhereMayBeAnything) {
  const LayerGroup group = TwoHeads();
  std::vector<float> rows(2 * kWidth, 1.0F), want(rows.size());
  const uint64_t from[] = {1}, to[] = {60};
  KeyRotation rotation{.from = from,
                       .to = to,
                       .rows = std::as_bytes(std::span(rows)),
                       .into = std::as_writable_bytes(std::span(want))};
  ASSERT_OK(RotateKeys(group, rotation));
  rotation.into = std::as_writable_bytes(std::span(rows));
  rotation.row_strides = {.layer = UINT64_MAX, .token = uint64_t{1} << 63};
  ASSERT_OK(RotateKeys(group, rotation));
  EXPECT_EQ(want, rows);
}

TEST(RotateKeysTest, SectionsTakeAPositionEach) {
  LayerGroup group = TwoHeads();
  group.planes[0].rotary.width = kWidth;
  group.planes[0].rotary.sections = {1, 3};
  std::vector<float> rows(2 * kWidth, 1.0F), into(rows.size());
  const uint64_t from[] = {4, 9}, to[] = {50, 9};
  KeyRotation rotation{.from = from,
                       .to = to,
                       .rows = std::as_bytes(std::span(rows)),
                       .into = std::as_writable_bytes(std::span(into))};
  ASSERT_OK(RotateKeys(group, rotation));
  for (size_t e = 0; e < kWidth; ++e) EXPECT_EQ(e % 4 == 0, into[e] != rows[e]) << e;
  rotation.from = rotation.to = std::span(to).first(1);
  EXPECT_FAILS(RotateKeys(group, rotation), StatusCode::kInvalidArgument,
               "to has 1 positions; a token has 2");
}

class RotateKeysRefusesTest : public ::testing::Test {
 protected:
  void Refused(const std::string& said) {
    const std::vector<float> before = rows_, target_before = into_;
    EXPECT_FAILS(RotateKeys(group_, rotation_), StatusCode::kInvalidArgument, said);
    EXPECT_TRUE(before == rows_ && target_before == into_);
    group_ = TwoHeads();
    rotation_ = Good();
  }
  KeyRotation Good() {
    return {.from = positions_,
            .to = positions_,
            .rows = std::as_bytes(std::span(rows_)),
            .into = std::as_writable_bytes(std::span(into_))};
  }
  std::vector<uint64_t> positions_ = {1, 2, 3};
  std::vector<float> rows_ = std::vector<float>(6 * kWidth, 1.0F), into_ = rows_;
  LayerGroup group_ = TwoHeads();
  KeyRotation rotation_ = Good();
};

TEST_F(RotateKeysRefusesTest, APlaneThatIsNotDescribedByItsField) {
  EXPECT_OK(RotateKeys(group_, rotation_));
  rotation_.plane = 2;
  Refused("plane is 2; the group has 2");
  rotation_.plane = 1;
  Refused("plane \"v\": rotary.state is none");
  group_.planes[0].rotary.state = RotaryState::kUnset;
  Refused("plane \"k\": rotary.state is unset");
  group_.planes[0].rotary.pairing = RotaryPairing::kUnset;
  Refused("rotary.pairing is unset");
  group_.planes[0].rotary.pairing = RotaryPairing{7};
  Refused("rotary.pairing is unknown");
  group_.inv_freq.clear();
  Refused("inv_freq of the group is empty");
  group_.inv_freq.resize(5);
  Refused("inv_freq of the group has 5 numbers");
  group_.inv_freq[2] = INFINITY;
  Refused("inv_freq[2] of the group is not finite");
  group_.mscale = NAN;
  Refused("mscale of the group is not finite");
  group_.planes[0].rotary.first = UINT32_MAX;
  Refused("inv_freq of the group");
  group_.planes[0].row_bytes = 33;
  Refused("row_bytes of the plane is 33");
  for (const Dtype dtype : {Dtype::kOpaque, Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kI8}) {
    group_.planes[0].dtype = dtype;
    Refused(std::string("elements of ") + DtypeName(dtype) + " cannot be rotated");
  }
}

TEST_F(RotateKeysRefusesTest, PositionsAndMemoryThatDoNotFit) {
  rotation_.from = rotation_.from.first(2);
  Refused("from has 2 positions, not 3, as many as to");
  rotation_.rows = rotation_.rows.first(191);
  Refused("rows has 191 bytes; the rows take 192");
  rotation_.into = rotation_.into.first(191);
  Refused("into has 191 bytes; the rows take 192");
  rotation_.layers = 2;
  Refused("rows has 192 bytes; the rows take 384");
  rotation_.row_strides.element = 3;
  Refused("row_strides.element is 3, by which rows overlap; from 4");
  rotation_.into_strides.token = 48;
  Refused("into_strides.token is 48, by which rows overlap; from 64");
  rotation_.row_strides = {.layer = 1, .token = UINT64_MAX / 2 + 1};
  Refused("row_strides.token is 9223372036854775808: rows are beyond 2^64 bytes apart");
  rotation_.row_strides.element = UINT64_MAX / 4;
  Refused("row_strides: rows are beyond 2^64 bytes apart");
  rotation_.into = std::as_writable_bytes(std::span(rows_));
  rotation_.row_strides = {.token = 4 * kWidth, .head = 12 * kWidth};
  Refused("into shares memory with rows");
  positions_ = {1};
  rotation_ = Good();
  rotation_.into = std::as_writable_bytes(std::span(rows_)).subspan(4);
  Refused("into shares memory with rows");
}

TEST_F(RotateKeysRefusesTest, NothingIsNoError) {
  rotation_ = {.rows = rotation_.rows, .into = rotation_.into};
  EXPECT_OK(RotateKeys(group_, rotation_));
  rotation_ = {};
  EXPECT_OK(RotateKeys(group_, rotation_));
  rotation_ = Good();
  rotation_.layers = 0;
  EXPECT_OK(RotateKeys(group_, rotation_));
  EXPECT_EQ(1.0F, into_[0]);
}

}  // namespace
}  // namespace cairn
