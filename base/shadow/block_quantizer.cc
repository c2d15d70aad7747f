// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/block_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/core/check.h"

namespace cairn::shadow {
namespace {

// Its inverse is finite, and both types have it, or nothing as small.
constexpr float kSmallestScale = 0x1p-126F;

// The smallest element that is not below `value`, which is positive.
uint16_t RoundedUp(bool fp16, float value) {
  const uint16_t nearest = Narrowed(fp16, value);
  return Widened(fp16, nearest) < value ? static_cast<uint16_t>(nearest + 1) : nearest;
}

// 0 if all elements of the channel are the same.
uint16_t ScaleOf(bool fp16, float range, float steps) {
  if (range == 0.0F) return 0;
  return RoundedUp(fp16, std::max(range * (1.0F / steps), kSmallestScale));
}

void Put(std::byte* at, uint16_t bits) { std::memcpy(at, &bits, sizeof(bits)); }

uint16_t Get(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

}  // namespace

std::optional<size_t> FindUnfit(bool fp16, std::span<const uint16_t> elements) {
  const uint16_t unfit = Narrowed(fp16, fp16 ? kUnfitF16 : kUnfitBf16);
  // Magnitudes are in the order of their bits; the largest are infinity and NaNs.
  const auto found = std::find_if(elements.begin(), elements.end(),
                                  [&](uint16_t bits) { return (bits & 0x7FFF) >= unfit; });
  if (found == elements.end()) return std::nullopt;
  return static_cast<size_t>(found - elements.begin());
}

void QuantiseBlock(const BlockLayout& layout, bool fp16, std::span<const uint16_t> rows,
                   std::span<std::byte> block) {
  const uint32_t channels = layout.channels;
  CAIRN_CHECK(rows.size() == size_t{kBlockRows} * channels);
  CAIRN_CHECK(block.size() == layout.block_bytes());
  if (layout.bits == 16) {
    std::memcpy(block.data(), rows.data(), block.size());
    return;
  }
  CAIRN_CHECK(layout.bits == 4 || layout.bits == 8);
  const auto steps = static_cast<float>((1u << layout.bits) - 1);
  std::vector<float> low(channels, kInfinity), high(channels, -kInfinity), inverse(channels);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float value = Widened(fp16, rows[i]);
    low[i % channels] = std::min(low[i % channels], value);
    high[i % channels] = std::max(high[i % channels], value);
  }
  for (uint32_t c = 0; c < channels; ++c) {
    const uint16_t scale = ScaleOf(fp16, high[c] - low[c], steps);
    Put(&block[2 * size_t{c}], Narrowed(fp16, low[c]));
    Put(&block[layout.scales_at() + 2 * size_t{c}], scale);
    inverse[c] = scale == 0 ? 0.0F : 1.0F / Widened(fp16, scale);
  }
  const std::span<std::byte> codes = block.subspan(layout.codes_at());
  std::fill(codes.begin(), codes.end(), std::byte{0});
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t c = i % channels;
    const float code = std::floor((Widened(fp16, rows[i]) - low[c]) * inverse[c] + 0.5F);
    const size_t bit = i * layout.bits;
    codes[bit / 8] |=
        static_cast<std::byte>(static_cast<uint32_t>(std::min(code, steps)) << bit % 8);
  }
}

void ReadBlock(const BlockLayout& layout, bool fp16, std::span<const std::byte> block,
               uint32_t first, std::span<uint16_t> rows) {
  const uint32_t channels = layout.channels;
  const size_t count = rows.size() / channels;
  CAIRN_CHECK(block.size() == layout.block_bytes() && rows.size() == count * channels);
  CAIRN_CHECK(first + count <= kBlockRows);
  const std::byte* const codes = block.data() + layout.codes_at();
  if (layout.bits == 16) {
    std::memcpy(rows.data(), codes + size_t{first} * layout.row_bytes(), rows.size_bytes());
    return;
  }
  const uint32_t mask = (1u << layout.bits) - 1;
  for (uint32_t c = 0; c < channels; ++c) {
    const float low = Widened(fp16, Get(block.data() + 2 * size_t{c}));
    const float scale = Widened(fp16, Get(block.data() + layout.scales_at() + 2 * size_t{c}));
    const uint32_t bit = c * layout.bits;
    for (size_t row = 0; row < count; ++row) {
      const auto byte = static_cast<uint32_t>(codes[(first + row) * layout.row_bytes() + bit / 8]);
      rows[row * channels + c] =
          Narrowed(fp16, CodeValue(fp16, low, scale, byte >> bit % 8 & mask));
    }
  }
}

}  // namespace cairn::shadow
