// SPDX-License-Identifier: Apache-2.0
//
// Property: a block of rows has the layout that docs/shadow.md gives; what is read back differs by
// half a scale and a rounding at most, and is the element itself where a channel has one value or
// its values are as many steps apart as there are codes. Method: a block computed by hand; drawn
// rows of every kind and both types, with bounds computed in double.
#include <gtest/gtest.h>

#include <cmath>

#include "base/shadow/block_quantizer.h"
#include "base/shadow/rebuild.h"
#include "tests/base/shadow_samples.h"
#include "tests/support/test_seed.h"

namespace cairn::shadow {
namespace {

using testing::MakeRows;
using testing::StoreBlocks;

uint16_t BitsAt(const std::vector<std::byte>& bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<uint16_t>(bytes[at]) |
                               static_cast<uint16_t>(bytes[at + 1]) << 8);
}

TEST(ShadowBlocks, LayoutOfAMadeUpBlock) {
  // Channel c of row r: channel 0 is 5, channel 1 is r mod 16, channel 2 is -r, the others 0.
  const BlockLayout layout{8, 4};
  std::vector<uint16_t> rows(kBlockRows * 8, 0);
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    rows[r * 8] = ToBf16(5.0F);
    rows[r * 8 + 1] = ToBf16(static_cast<float>(r % 16));
    rows[r * 8 + 2] = ToBf16(-static_cast<float>(r));
  }
  const std::vector<std::byte> block = StoreBlocks(layout, false, rows);
  ASSERT_EQ(block.size(), 32 + 64 * 4u);
  EXPECT_EQ(BitsAt(block, 0), ToBf16(5.0F));
  EXPECT_EQ(BitsAt(block, 2), ToBf16(0.0F));
  EXPECT_EQ(BitsAt(block, 4), ToBf16(-63.0F));
  EXPECT_EQ(BitsAt(block, 16), 0);                         // One value: no scale,
  EXPECT_EQ(BitsAt(block, 18), ToBf16(1.0F));              // 15 / 15,
  EXPECT_EQ(Widened(false, BitsAt(block, 20)), 4.21875F);  // 63 / 15 = 4.2, rounded up.
  // Row 37: codes 0 and 5 in the first byte; (63 - 37) / 4.21875 = 6.16 in the second.
  EXPECT_EQ(block[32 + 37 * 4], std::byte{0x50});
  EXPECT_EQ(block[32 + 37 * 4 + 1], std::byte{0x06});
  EXPECT_EQ(block[32 + 37 * 4 + 2], std::byte{0x00});
  std::vector<uint16_t> back(rows.size());
  ReadBlock(layout, false, block, 0, back);
  for (uint32_t r = 0; r < kBlockRows; ++r) {
    EXPECT_EQ(back[r * 8], rows[r * 8]);
    EXPECT_EQ(back[r * 8 + 1], rows[r * 8 + 1]);
  }
  EXPECT_EQ(Widened(false, back[37 * 8 + 2]), -37.75F);  // -63 + 6 * 4.21875 = -37.6875, to bf16.
}

TEST(ShadowBlocks, SixteenBitsAreTheRows) {
  SeededRandom random(1);
  const BlockLayout layout{16, 16};
  const std::vector<uint16_t> rows = MakeRows(random, testing::Rows::kWide, true, 16, kBlockRows);
  const std::vector<std::byte> block = StoreBlocks(layout, true, rows);
  ASSERT_EQ(block.size(), rows.size() * 2);
  std::vector<uint16_t> back(rows.size());
  ReadBlock(layout, true, block, 0, back);
  EXPECT_EQ(back, rows);
}

TEST(ShadowBlocks, NothingMovesByMoreThanHalfAScale) {
  const uint64_t seed = testing::QuickTestSeed();
  const testing::Repeatable repeatable(seed);
  SeededRandom random(seed);
  constexpr uint32_t kChannels = 32;
  for (int round = 0; round < 400; ++round) {
    const BlockLayout layout{kChannels, random.Below(2) == 0 ? 4u : 8u};
    const bool fp16 = random.Below(2) == 0;
    const std::vector<uint16_t> rows =
        MakeRows(random, testing::kRows[random.Below(std::size(testing::kRows))], fp16, kChannels,
                 kBlockRows);
    const std::vector<std::byte> block = StoreBlocks(layout, fp16, rows);
    std::vector<uint16_t> back(rows.size());
    ReadBlock(layout, fp16, block, 0, back);
    for (size_t i = 0; i < rows.size(); ++i) {
      const double is = Widened(fp16, back[i]), was = Widened(fp16, rows[i]);
      const double scale = Widened(fp16, BitsAt(block, layout.scales_at() + 2 * (i % kChannels)));
      // One rounding to the dtype; those to fp32 are small beside it.
      const double rounding =
          std::max(std::fabs(is) * (fp16 ? 0x1p-11 : 0x1p-8), fp16 ? 0x1p-25 : 0x1p-134);
      ASSERT_LE(std::fabs(is - was), 0.501 * scale + 1.001 * rounding)
          << repeatable.command() << " round " << round << ", element " << i << ": " << was;
      if (scale == 0) {
        ASSERT_EQ(is, was);
      }
    }
  }
}

TEST(ShadowBlocks, CloseElementsHaveAScaleWithAnInverse) {
  // The two smallest numbers of bf16, whose distance has no finite inverse.
  const BlockLayout layout{8, 8};
  std::vector<uint16_t> rows(kBlockRows * 8, 0);
  rows[8] = 1;
  const std::vector<std::byte> block = StoreBlocks(layout, false, rows);
  EXPECT_EQ(Widened(false, BitsAt(block, layout.scales_at())), 0x1p-126F);
  EXPECT_EQ(Widened(false, BitsAt(block, layout.scales_at() + 2)), 0.0F);
  std::vector<uint16_t> back(rows.size());
  ReadBlock(layout, false, block, 0, back);
  EXPECT_EQ(back, std::vector<uint16_t>(rows.size(), 0));
}

TEST(ShadowBlocks, ElementsOutOfRangeAreFound) {
  for (const bool fp16 : {false, true}) {
    const float limit = fp16 ? 32768.0F : 0x1p59F;
    const uint16_t largest = static_cast<uint16_t>(Narrowed(fp16, limit) - 1);
    std::vector<uint16_t> elements = {0, 0x8000, largest, static_cast<uint16_t>(largest | 0x8000)};
    EXPECT_EQ(FindOutOfRange(fp16, elements), std::nullopt);
    for (const float bad : {limit, -limit, kInfinity, -kInfinity, std::nanf("")}) {
      elements[2] = Narrowed(fp16, bad);
      EXPECT_EQ(FindOutOfRange(fp16, elements), 2u) << bad;
    }
  }
}

TEST(ShadowBlocks, TheWidestThatIsFitStaysFinite) {
  for (const bool fp16 : {false, true}) {
    const auto largest =
        static_cast<uint16_t>(Narrowed(fp16, fp16 ? kMagnitudeLimitF16 : kMagnitudeLimitBf16) - 1);
    std::vector<uint16_t> rows(kBlockRows * 8, largest);
    for (uint32_t c = 0; c < 8; ++c) rows[c] |= 0x8000;
    for (const uint32_t bits : {4u, 8u}) {
      const BlockLayout layout{8, bits};
      std::vector<uint16_t> back(rows.size());
      ReadBlock(layout, fp16, StoreBlocks(layout, fp16, rows), 0, back);
      for (const uint16_t element : back) EXPECT_TRUE(std::isfinite(Widened(fp16, element)));
      EXPECT_EQ(back[0], rows[0]);
    }
  }
}

TEST(ShadowBlocks, AChunkIsItsRowsOfTheBlock) {
  SeededRandom random(3);
  const BlockLayout layout{16, 4};
  const std::vector<uint16_t> rows =
      MakeRows(random, testing::Rows::kKeys, false, 16, 3 * kBlockRows);
  const std::vector<std::byte> blocks = StoreBlocks(layout, false, rows);
  for (const uint32_t chunk_tokens : {1u, 2u, 4u, 8u, 16u}) {
    for (uint32_t chunk = 0; chunk < 3 * kBlockRows / chunk_tokens; ++chunk) {
      const uint32_t row = chunk * chunk_tokens;
      std::vector<uint16_t> is(chunk_tokens * 16), block(kBlockRows * 16);
      RebuildChunk(layout, false, blocks, chunk, chunk_tokens, is);
      ReadBlock(
          layout, false,
          std::span(blocks).subspan(row / kBlockRows * layout.block_bytes(), layout.block_bytes()),
          0, block);
      const auto from = block.begin() + row % kBlockRows * 16;
      EXPECT_EQ(is, std::vector<uint16_t>(from, from + chunk_tokens * 16));
    }
  }
}

}  // namespace
}  // namespace cairn::shadow
