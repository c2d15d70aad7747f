// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/block_quantizer.h"

#include <algorithm>
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

std::optional<size_t> FindOutOfRange(bool fp16, std::span<const uint16_t> elements) {
  const uint16_t limit = Narrowed(fp16, fp16 ? kMagnitudeLimitF16 : kMagnitudeLimitBf16);
  // Magnitudes are in the order of their bits; the largest are infinity and NaNs.
  const auto found = std::find_if(elements.begin(), elements.end(),
                                  [&](uint16_t bits) { return (bits & 0x7FFF) >= limit; });
  if (found == elements.end()) return std::nullopt;
  return static_cast<size_t>(found - elements.begin());
}

namespace {

// Channels that a loop works on at once, each independently, so that it becomes vector
// instructions. A row is a multiple of them (BlockLayout).
constexpr uint32_t kAtOnce = 8;

// Bounds of the channels from the one on where `rows` begins.
template <bool kFp16>
void FindRange(const uint16_t* rows, size_t stride, float* low, float* high) {
  float least[kAtOnce], most[kAtOnce];
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    least[i] = kInfinity;
    most[i] = -kInfinity;
  }
  for (size_t row = 0; row < kBlockRows; ++row) {
    const uint16_t* const from = rows + row * stride;
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const float value = Widened(kFp16, from[i]);
      least[i] = value < least[i] ? value : least[i];
      most[i] = value > most[i] ? value : most[i];
    }
  }
  std::copy_n(least, kAtOnce, low);
  std::copy_n(most, kAtOnce, high);
}

// The conversion truncates, which equals floor: no value is below 0.
template <bool kFp16>
void FindCodes(const uint16_t* row, const float* low, const float* inverse, float steps,
               uint8_t* codes) {
  int32_t found[kAtOnce];
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    const float code = (Widened(kFp16, row[i]) - low[i]) * inverse[i] + 0.5F;
    found[i] = static_cast<int32_t>(code < steps ? code : steps);
  }
  for (uint32_t i = 0; i < kAtOnce; ++i) codes[i] = static_cast<uint8_t>(found[i]);
}

template <bool kFp16>
void Quantise(const BlockLayout& layout, std::span<const uint16_t> rows,
              std::span<std::byte> block) {
  const uint32_t channels = layout.channels;
  const auto steps = static_cast<float>((1u << layout.bits) - 1);
  CAIRN_CHECK(channels % kAtOnce == 0);
  std::vector<float> low(channels), high(channels), inverse(channels);
  for (uint32_t c = 0; c < channels; c += kAtOnce) {
    FindRange<kFp16>(&rows[c], channels, &low[c], &high[c]);
  }
  for (uint32_t c = 0; c < channels; ++c) {
    const uint16_t scale = ScaleOf(kFp16, high[c] - low[c], steps);
    Put(&block[2 * size_t{c}], Narrowed(kFp16, low[c]));
    Put(&block[layout.scales_at() + 2 * size_t{c}], scale);
    inverse[c] = scale == 0 ? 0.0F : 1.0F / Widened(kFp16, scale);
  }
  std::vector<uint8_t> codes(channels);
  auto* into = reinterpret_cast<uint8_t*>(block.data()) + layout.codes_at();
  for (size_t row = 0; row < kBlockRows; ++row, into += layout.row_bytes()) {
    for (uint32_t c = 0; c < channels; c += kAtOnce) {
      FindCodes<kFp16>(&rows[row * channels + c], &low[c], &inverse[c], steps, &codes[c]);
    }
    if (layout.bits == 8) {
      std::memcpy(into, codes.data(), channels);
      continue;
    }
    for (uint32_t c = 0; c < channels; c += 2) {
      into[c / 2] = static_cast<uint8_t>(codes[c] | codes[c + 1] << 4);
    }
  }
}

}  // namespace

void QuantiseBlock(const BlockLayout& layout, bool fp16, std::span<const uint16_t> rows,
                   std::span<std::byte> block) {
  CAIRN_CHECK(rows.size() == size_t{kBlockRows} * layout.channels);
  CAIRN_CHECK(block.size() == layout.block_bytes());
  if (layout.bits == 16) {
    std::memcpy(block.data(), rows.data(), block.size());
    return;
  }
  CAIRN_CHECK(layout.bits == 4 || layout.bits == 8);
  fp16 ? Quantise<true>(layout, rows, block) : Quantise<false>(layout, rows, block);
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
