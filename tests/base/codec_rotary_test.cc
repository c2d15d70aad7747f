// SPDX-License-Identifier: Apache-2.0
//
// Property: rows are rotated within the bound that base/codec/rotary.h states, whatever the
// pairing, the scaling, the window, the sections, the type and how far; and what does not turn
// keeps its bits. Frequencies are those that engines compute. Method: an oracle in double, from the
// same angles; closed forms of the frequencies, again in double; rows with NaN, infinities and
// subnormals where nothing turns.
#include "base/codec/rotary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <string>
#include <tuple>

#include "tests/support/status.h"

namespace cairn {
namespace {

constexpr double kF32Roundoff = 0x1p-24;

double Roundoff(Dtype dtype) {
  return dtype == Dtype::kF32 ? kF32Roundoff : dtype == Dtype::kF16 ? 0x1p-11 : 0x1p-8;
}
double TinyLoss(Dtype dtype) { return 2 * (dtype == Dtype::kF16 ? 0x1p-25 : 0x1p-134); }

// The value of an element, by the definition of its type.
double ValueOf(Dtype dtype, const std::byte* at) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, 4);
    return double{value};
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  if (dtype == Dtype::kBf16) return double{std::bit_cast<float>(uint32_t{bits} << 16)};
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits >> 15) != 0 ? -magnitude : magnitude;
}

LayerGroup GroupOf(Dtype dtype, uint32_t elements, RotarySpec rotary, std::vector<float> inv_freq,
                   float mscale = 1.0F) {
  LayerGroup group = LayerGroup::FullAttention(1, 1, elements, dtype);
  group.planes[0].rotary = std::move(rotary);
  group.inv_freq = std::move(inv_freq);
  group.mscale = mscale;
  return group;
}

// Elements of many magnitudes, finite; some of them subnormal where `small`.
std::vector<std::byte> RandomRow(Dtype dtype, uint32_t elements, bool small,
                                 std::mt19937_64* random) {
  std::vector<std::byte> row(elements * DtypeBytes(dtype));
  for (uint32_t i = 0; i < elements; ++i) {
    const uint64_t drawn = (*random)();
    std::byte* const at = row.data() + i * DtypeBytes(dtype);
    const auto sign = static_cast<uint32_t>(drawn >> 63);
    if (dtype == Dtype::kF16) {
      const auto exponent = static_cast<uint32_t>(small ? drawn % 2 : 5 + drawn % 20);
      const auto bits = static_cast<uint16_t>(sign << 15 | exponent << 10 | (drawn >> 20 & 1023));
      std::memcpy(at, &bits, 2);
    } else {
      const auto exponent = static_cast<uint32_t>(small ? drawn % 2 : 100 + drawn % 50);
      const auto bits = sign << 31 | exponent << 23 | static_cast<uint32_t>(drawn >> 20 & 0x7FFFFF);
      const auto upper = static_cast<uint16_t>(bits >> 16);
      if (dtype == Dtype::kF32) std::memcpy(at, &bits, 4);
      if (dtype == Dtype::kBf16) std::memcpy(at, &upper, 2);
    }
  }
  return row;
}

struct Pair {
  size_t x = 0, y = 0;  // Elements of the row.
};
Pair PairAt(const RotarySpec& rotary, size_t pairs, size_t i) {
  const size_t first = rotary.first;
  if (rotary.pairing == RotaryPairing::kAdjacent) return {first + 2 * i, first + 2 * i + 1};
  return {first + i, first + i + pairs};
}

// Angles of the engine, in fp32.
double AngleOf(const LayerGroup& group, size_t pair, uint64_t position) {
  const float angle = static_cast<float>(position) * group.inv_freq[pair];
  return double{angle};
}

void ExpectWithinBound(const LayerGroup& group, const std::vector<std::byte>& row,
                       const std::vector<std::byte>& got,
                       const std::function<double(size_t pair)>& angle, double scale,
                       double roundoffs) {
  const Plane& plane = group.planes[0];
  const size_t bytes = DtypeBytes(plane.dtype), pairs = group.inv_freq.size();
  std::vector<bool> turned(row.size() / bytes);
  for (size_t i = 0; i < pairs; ++i) {
    const auto [x_at, y_at] = PairAt(plane.rotary, pairs, i);
    turned[x_at] = turned[y_at] = true;
    const auto value = [&](const std::vector<std::byte>& of, size_t at) {
      return ValueOf(plane.dtype, of.data() + at * bytes);
    };
    const double x = value(row, x_at), y = value(row, y_at);
    const double c = std::cos(angle(i)) * scale, s = std::sin(angle(i)) * scale;
    const double want_x = x * c - y * s, want_y = y * c + x * s;
    const double error = std::hypot(value(got, x_at) - want_x, value(got, y_at) - want_y);
    const double norm = std::hypot(want_x, want_y);
    ASSERT_LE(error, (roundoffs * Roundoff(plane.dtype) + 4 * kF32Roundoff) * norm +
                         roundoffs * TinyLoss(plane.dtype))
        << "pair " << i << ": (" << x << ", " << y << ")";
  }
  for (size_t at = 0; at < turned.size(); ++at) {
    if (turned[at]) continue;
    EXPECT_EQ(0, std::memcmp(row.data() + at * bytes, got.data() + at * bytes, bytes)) << at;
  }
}

struct Shape {
  const char* name;
  uint32_t elements;
  RotarySpec rotary;
  std::vector<float> inv_freq;
};

std::vector<Shape> Shapes() {
  const auto plain = RotaryFrequencies(128, 10'000.0);
  const auto applied = [](RotaryPairing pairing, uint32_t first, uint32_t width,
                          std::vector<uint32_t> sections = {}, bool interleaved = false) {
    return RotarySpec{.state = RotaryState::kApplied,
                      .pairing = pairing,
                      .first = first,
                      .width = width,
                      .sections = std::move(sections),
                      .interleaved = interleaved};
  };
  std::vector<Shape> shapes;
  for (const RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kAdjacent}) {
    shapes.push_back({"whole row", 128, applied(pairing, 0, 0), plain});
    shapes.push_back({"linear", 128, applied(pairing, 0, 128), LinearFrequencies(plain, 8.0)});
    shapes.push_back({"Llama 3", 128, applied(pairing, 0, 128),
                      Llama3Frequencies(RotaryFrequencies(128, 500'000.0), {})});
    shapes.push_back(
        {"YaRN", 128, applied(pairing, 0, 0), YarnFrequencies(128, 10'000.0, {.factor = 40.0})});
    shapes.push_back({"half of the row", 128, applied(pairing, 0, 64), RotaryFrequencies(64, 1e4)});
    shapes.push_back({"behind others", 192, applied(pairing, 128, 64), RotaryFrequencies(64, 1e4)});
    shapes.push_back({"sections", 128, applied(pairing, 0, 128, {16, 24, 24}), plain});
    shapes.push_back({"interleaved", 128, applied(pairing, 0, 128, {24, 20, 20}, true), plain});
  }
  return shapes;
}

class RotaryTest : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, RotaryTest,
                         ::testing::Values(Dtype::kF32, Dtype::kF16, Dtype::kBf16),
                         [](const auto& param) { return std::string(DtypeName(param.param)); });

constexpr std::tuple<uint64_t, uint64_t> kMoves[] = {
    {0, 1}, {1, 0}, {7, 7'000}, {131'000, 5}, {5, 1'000'003}, {1'048'575, 1'048'576}, {1 << 25, 3}};

TEST_P(RotaryTest, FromOnePositionToAnotherWithinTheBound) {
  std::mt19937_64 random(1);
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(shape.name);
    const LayerGroup group =
        GroupOf(GetParam(), shape.elements, shape.rotary, shape.inv_freq, 1.3F);
    ASSERT_OK_ASSIGN(const Rotation rotation, Rotation::Of(group, 0));
    std::vector<RotaryTurn> turns(rotation.pairs());
    for (const auto& [from, to] : kMoves) {
      // Positions of a token differ.
      std::vector<uint64_t> froms, tos;
      for (uint64_t i = 0; i < rotation.positions(); ++i) {
        froms.push_back(from + 3 * i);
        tos.push_back(to + 5 * i);
      }
      rotation.Between(froms, tos, turns);
      const auto angle = [&](size_t pair) {
        const uint32_t section = RotarySection(shape.rotary, static_cast<uint32_t>(pair));
        return AngleOf(group, pair, tos[section]) - AngleOf(group, pair, froms[section]);
      };
      for (const bool small : {false, true}) {
        const std::vector<std::byte> row = RandomRow(GetParam(), shape.elements, small, &random);
        std::vector<std::byte> got(row.size());
        rotation.Turn(turns, row, got);
        ASSERT_NO_FATAL_FAILURE(ExpectWithinBound(group, row, got, angle, 1.0, 1.0));
        std::vector<std::byte> in_place = row;
        rotation.Turn(turns, in_place, in_place);
        EXPECT_TRUE(in_place == got);
      }
    }
  }
}

// Stored before rotation: once, with the scale. And what was rotated at one position and then moved
// is what is rotated at the other, as far as three roundings allow.
TEST_P(RotaryTest, AtAPositionWithinTheBound) {
  std::mt19937_64 random(2);
  for (Shape shape : Shapes()) {
    SCOPED_TRACE(shape.name);
    shape.rotary.state = RotaryState::kBefore;
    const float mscale = shape.rotary.sections.empty() ? 1.0F : 1.25F;
    const LayerGroup group =
        GroupOf(GetParam(), shape.elements, shape.rotary, shape.inv_freq, mscale);
    ASSERT_OK_ASSIGN(const Rotation rotation, Rotation::Of(group, 0));
    std::vector<RotaryTurn> turns(rotation.pairs());
    for (const auto& [from, to] : kMoves) {
      const std::vector<uint64_t> at(rotation.positions(), to), was(rotation.positions(), from);
      const std::vector<std::byte> row = RandomRow(GetParam(), shape.elements, false, &random);
      std::vector<std::byte> got(row.size()), moved(row.size());
      rotation.At(at, turns);
      rotation.Turn(turns, row, got);
      const auto angle = [&](size_t pair) { return AngleOf(group, pair, to); };
      // The scale rounds both once more.
      ASSERT_NO_FATAL_FAILURE(
          ExpectWithinBound(group, row, got, angle, double{mscale}, mscale == 1.0F ? 1.0 : 2.0));
      rotation.At(was, turns);
      rotation.Turn(turns, row, moved);
      rotation.Between(was, at, turns);
      rotation.Turn(turns, moved, moved);
      ASSERT_NO_FATAL_FAILURE(ExpectWithinBound(group, row, moved, angle, double{mscale},
                                                2.0 + 8 * kF32Roundoff / Roundoff(GetParam())));
    }
  }
}

TEST_P(RotaryTest, WhatDoesNotTurnKeepsItsBits) {
  const RotarySpec rotary{.state = RotaryState::kApplied,
                          .pairing = RotaryPairing::kHalves,
                          .first = 2,
                          .width = 8,
                          .sections = {1, 3}};
  const LayerGroup group = GroupOf(GetParam(), 12, rotary, RotaryFrequencies(8, 100.0));
  ASSERT_OK_ASSIGN(const Rotation rotation, Rotation::Of(group, 0));
  EXPECT_EQ(4u, rotation.pairs());
  EXPECT_EQ(2u, rotation.positions());
  // NaN with a payload, infinity, -0 and the smallest subnormal, over and over.
  std::vector<std::byte> row(12 * DtypeBytes(GetParam()));
  for (size_t i = 0; i < 12; ++i) {
    std::byte* const at = row.data() + i * DtypeBytes(GetParam());
    const uint32_t f32[] = {0x7FC12345, 0xFF800000, 0x80000000, 1};
    const uint16_t f16[] = {0x7E35, 0xFC00, 0x8000, 1}, bf16[] = {0x7FC5, 0xFF80, 0x8000, 1};
    if (GetParam() == Dtype::kF32) std::memcpy(at, &f32[i % 4], 4);
    if (GetParam() == Dtype::kF16) std::memcpy(at, &f16[i % 4], 2);
    if (GetParam() == Dtype::kBf16) std::memcpy(at, &bf16[i % 4], 2);
  }
  std::vector<RotaryTurn> turns(4);
  const uint64_t same[] = {9, 77}, other[] = {10, 77};
  std::vector<std::byte> got(row.size());
  rotation.Between(same, same, turns);
  rotation.Turn(turns, row, got);
  EXPECT_TRUE(row == got);
  // The first section alone: elements 2 and 6.
  rotation.Between(same, other, turns);
  rotation.Turn(turns, row, got);
  for (size_t i = 0; i < 12; ++i) {
    const size_t bytes = DtypeBytes(GetParam());
    const bool equal = std::memcmp(row.data() + i * bytes, got.data() + i * bytes, bytes) == 0;
    EXPECT_TRUE(equal || i == 2 || i == 6) << i;
  }
}

TEST(RotaryTypesTest, EveryHalfComesBack) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    // A turn by half a circle negates without rounding, so each value must come back as it is.
    LayerGroup group = GroupOf(
        dtype, 2, {.state = RotaryState::kApplied, .pairing = RotaryPairing::kAdjacent}, {1.0F});
    ASSERT_OK_ASSIGN(const Rotation rotation, Rotation::Of(group, 0));
    const std::vector<RotaryTurn> negate = {{-1.0F, 0.0F}};
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const bool finite =
          dtype == Dtype::kF16 ? (bits & 0x7C00) != 0x7C00 : (bits & 0x7F80) != 0x7F80;
      if (!finite) continue;
      const uint16_t pair[] = {static_cast<uint16_t>(bits), static_cast<uint16_t>(bits ^ 0x8000)};
      std::vector<std::byte> row(4);
      std::memcpy(row.data(), pair, 4);
      rotation.Turn(negate, row, row);
      uint16_t got[2];
      std::memcpy(got, row.data(), 4);
      // The product with a zero sine leaves the sign of a zero open.
      if ((bits & 0x7FFF) != 0) {
        ASSERT_EQ(pair[1], got[0]);
        ASSERT_EQ(pair[0], got[1]);
      }
    }
  }
}

TEST(RotaryTypesTest, WhatIsNotDescribedIsRefusedByItsField) {
  const RotarySpec good{.state = RotaryState::kApplied, .pairing = RotaryPairing::kHalves};
  const auto refused = [&](auto change, const std::string& field) {
    LayerGroup group = GroupOf(Dtype::kBf16, 8, good, RotaryFrequencies(8, 1e4));
    change(group);
    EXPECT_FAILS(Rotation::Of(group, 0), StatusCode::kInvalidArgument, field);
  };
  EXPECT_OK(Rotation::Of(GroupOf(Dtype::kBf16, 8, good, RotaryFrequencies(8, 1e4)), 0));
  refused([](LayerGroup& g) { g.planes[0].rotary.state = RotaryState::kUnset; }, "state is unset");
  refused([](LayerGroup& g) { g.planes[0].rotary.state = RotaryState::kNone; }, "state is none");
  refused([](LayerGroup& g) { g.planes[0].rotary.pairing = RotaryPairing::kUnset; }, "pairing");
  refused([](LayerGroup& g) { g.inv_freq.clear(); }, "inv_freq");
  refused([](LayerGroup& g) { g.inv_freq.resize(5); }, "5 numbers");
  refused([](LayerGroup& g) { g.planes[0].rotary.width = 4; }, "4 numbers");
  refused([](LayerGroup& g) { g.planes[0].dtype = Dtype::kF8E4M3; }, "f8e4m3");
}

TEST(RotaryFrequenciesTest, AreThoseOfTheEngines) {
  const std::vector<float> plain = RotaryFrequencies(128, 500'000.0);
  ASSERT_EQ(64u, plain.size());
  EXPECT_EQ(1.0F, plain[0]);
  EXPECT_FLOAT_EQ(static_cast<float>(std::pow(500'000.0, -126.0 / 128)), plain[63]);
  const std::vector<float> linear = LinearFrequencies(plain, 4.0);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i] / 4, linear[i]);

  // Llama 3.1: its short waves stay, its long ones are eight times as long.
  const std::vector<float> llama = Llama3Frequencies(plain, {});
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wave = 2 * std::numbers::pi / double{plain[i]};
    if (wave < 8192.0 / 4) {
      EXPECT_EQ(plain[i], llama[i]);
    } else if (wave > 8192.0) {
      EXPECT_FLOAT_EQ(plain[i] / 8, llama[i]);
    }
    EXPECT_LE(llama[i], plain[i]);
    EXPECT_GE(llama[i], plain[i] / 8 * 0.9999F);
    EXPECT_TRUE(i == 0 || llama[i] < llama[i - 1]);
  }

  // DeepSeek-V3: 64 elements, base 10000, 40 times 4096 positions. The ramp goes from pair 10
  // to 23.
  const std::vector<float> base = RotaryFrequencies(64, 10'000.0);
  const std::vector<float> yarn =
      YarnFrequencies(64, 10'000.0, {.factor = 40.0, .original_positions = 4096});
  for (size_t i = 0; i < 32; ++i) {
    const double divided = std::clamp((static_cast<double>(i) - 10) / 13, 0.0, 1.0);
    EXPECT_FLOAT_EQ(static_cast<float>(double{base[i]} * (1 - divided + divided / 40)), yarn[i])
        << i;
  }
  EXPECT_FLOAT_EQ(1.3688879F, YarnMscale(40.0));
  EXPECT_FLOAT_EQ(1.0F, YarnMscale(1.0));
  EXPECT_FLOAT_EQ(1.0F, YarnMscale(40.0, 1.0) / YarnMscale(40.0, 1.0));
}

// Phi-3's way: each pair has a factor of its own, one set for short contexts and one for long ones.
TEST(RotaryFrequenciesTest, LongRopeDividesEachPairByItsFactor) {
  const LongRopeScaling scaling{.short_factors = {1.0, 1.25, 1.5, 2.0},
                                .long_factors = {1.0, 8.0, 32.0, 64.0},
                                .original_positions = 4096};
  const auto of = [&](uint64_t context) {
    LongRopeScaling with = scaling;
    with.context_positions = context;
    return LongRopeFrequencies(8, 10'000.0, with);
  };
  for (size_t i = 0; i < 4; ++i) {
    const double plain = std::pow(10'000.0, -2.0 * static_cast<double>(i) / 8);
    EXPECT_EQ(static_cast<float>(plain / scaling.short_factors[i]), of(0)[i]);
    EXPECT_EQ(static_cast<float>(plain / scaling.short_factors[i]), of(4096)[i]);
    EXPECT_EQ(static_cast<float>(plain / scaling.long_factors[i]), of(4097)[i]);
  }
  EXPECT_EQ(4u, of(0).size());
  LongRopeScaling few = scaling;
  few.short_factors.pop_back();
  EXPECT_EQ(3u, LongRopeFrequencies(8, 10'000.0, few).size());
  // Phi-3-mini-128k: 131072 positions of 4096.
  EXPECT_FLOAT_EQ(1.1902381F, LongRopeMscale(32.0, 4096));
  EXPECT_EQ(1.0F, LongRopeMscale(1.0, 4096));
}

TEST(RotarySectionsTest, LieBehindEachOtherOrTakeTurns) {
  RotarySpec rotary{.width = 16, .sections = {2, 3, 3}};
  std::vector<uint32_t> found;
  for (uint32_t pair = 0; pair < 8; ++pair) found.push_back(RotarySection(rotary, pair));
  EXPECT_EQ((std::vector<uint32_t>{0, 0, 1, 1, 1, 2, 2, 2}), found);
  // Qwen3-VL: t h w t h w ..., and what is left is time.
  rotary = {.width = 16, .sections = {4, 2, 2}, .interleaved = true};
  found.clear();
  for (uint32_t pair = 0; pair < 8; ++pair) found.push_back(RotarySection(rotary, pair));
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 0, 1, 2, 0, 0}), found);
}

}  // namespace
}  // namespace cairn
