// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of shadows (docs/shadow.md) that kernels and the host share. Everything is fp32 in
// the order written: no fused multiply and add, IEEE division, subnormals kept. So both give the
// same bits.
#pragma once

#include <cstdint>

#include "base/codec/float16.h"
#include "base/core/gpu_code.h"

namespace cairn::shadow {

// Tokens, or landmarks, that are quantised together.
inline constexpr uint32_t kBlockRows = 64;
// Lanes of a sum.
inline constexpr uint32_t kLanes = 32;
// Chunks whose exponentials are summed relative to a maximum of their own: as many as one block of
// threads scores. Each of its four warps has one block of landmarks.
inline constexpr uint32_t kTileChunks = 256;

inline constexpr float kInfinity = __builtin_inff();

// NaN only if `a` is one.
CAIRN_GPU float Max(float a, float b) { return b > a ? b : a; }

// part(0) + ... + part(31) in the order of a butterfly: lanes 16 apart are added first, those next
// to each other last. Every lane of a warp that adds what lane ^ 16, ^ 8, ... ^ 1 has gets this.
template <typename Part>
CAIRN_GPU float AddLanes(const Part& part) {
  float sum[16];
  CAIRN_UNROLL
  for (uint32_t i = 0; i < 16; ++i) sum[i] = part(i) + part(i + 16);
  CAIRN_UNROLL
  for (uint32_t i = 0; i < 8; ++i) sum[i] = sum[i] + sum[i + 8];
  CAIRN_UNROLL
  for (uint32_t i = 0; i < 4; ++i) sum[i] = sum[i] + sum[i + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

// e^x within 1.1 ulp. Below -87 it is 0, also of NaN; above 88 it is e^88.
CAIRN_GPU float Exp(float x) {
  if (!(x >= -87.0F)) return 0.0F;
  if (x > 88.0F) x = 88.0F;
  // To the nearest whole number: 1.5 * 2^23 leaves no bits for a fraction.
  const float shifted = x * 0x1.715476p+0F + 0x1.8p+23F;  // log2(e)
  const float whole = shifted - 0x1.8p+23F;
  // ln 2 in two parts; the first has so few bits that its product is exact.
  const float r = (x - whole * 0x1.63p-1F) - whole * -0x1.bd0106p-13F;
  // (e^r - 1 - r) / r^2 up to ln 2 / 2, within 1e-8 of e^r (interpolated at Chebyshev's nodes).
  float p = 0x1.6d117cp-10F;
  p = p * r + 0x1.120be2p-7F;
  p = p * r + 0x1.555518p-5F;
  p = p * r + 0x1.5554dcp-3F;
  p = p * r + 0.5F;
  const float y = 1.0F + (r + (r * r) * p);
  // |whole| is below 128, so that its bits are those of `shifted`.
  const uint32_t exponent = BitsOfFloat(shifted) - BitsOfFloat(0x1.8p+23F);
  return FloatOfBits(BitsOfFloat(y) + (exponent << 23));
}

// The natural logarithm within 1 ulp of a normal number; of 0, less and NaN minus infinity.
CAIRN_GPU float Log(float x) {
  if (!(x > 0.0F)) return -kInfinity;
  // x = m * 2^k with m from sqrt(1/2) to sqrt(2).
  const uint32_t bits = BitsOfFloat(x) + (0x3F800000 - 0x3F3504F3);
  const float k = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  const float m = FloatOfBits((bits & 0x7FFFFF) + 0x3F3504F3);
  // With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - (h - s * (h + series)), where h = f^2 / 2
  // and series = 2 s^2/3 + 2 s^4/5 + ...
  const float f = m - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  float series = 2.0F / 9.0F;
  series = series * z + 2.0F / 7.0F;
  series = series * z + 2.0F / 5.0F;
  series = series * z + 2.0F / 3.0F;
  series = series * z;
  const float h = 0.5F * f * f;
  return k * 0x1.63p-1F - ((h - (s * (h + series) + k * -0x1.bd0106p-13F)) - f);
}

// Sums the scores of one query head for the chunks of one tile.
struct TileSum {
  float max = -kInfinity;  // Minus infinity without any.
  float sum = 0.0F;        // The sum of e^(score - max).
};

CAIRN_GPU uint32_t TileCount(uint32_t chunks) {
  return chunks / kTileChunks + (chunks % kTileChunks != 0 ? 1 : 0);
}

// Whether chunk `chunk` is always attended to, and so cannot be selected: bit i % 32 of word i / 32
// is for chunk i.
CAIRN_GPU bool IsAlways(const uint32_t* always, uint32_t chunk) {
  return (always[chunk / 32] >> chunk % 32 & 1) != 0;
}

// Unsigned numbers in the order of the floats, and above 0; both zeros are one.
// REQUIRES: not NaN.
CAIRN_GPU uint32_t OrderedBits(float value) {
  const uint32_t bits = BitsOfFloat(value + 0.0F);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

// The value of a code of the block quantiser.
CAIRN_GPU float CodeValue(bool fp16, float low, float scale, uint32_t code) {
  return RoundedTo(fp16, low + static_cast<float>(code) * scale);
}

// The layout of kBlockRows rows. With 4 and 8 bits: the lowest element of each channel and its
// scale, of 2 bytes each; then the codes, row by row, with 4 bits two a byte, the even channel in
// the low half. With 16 bits: the rows themselves.
struct BlockLayout {
  uint32_t channels = 0;  // A multiple of 8.
  uint32_t bits = 4;

  CAIRN_GPU uint32_t scales_at() const { return 2 * channels; }
  CAIRN_GPU uint32_t codes_at() const { return bits == 16 ? 0 : 4 * channels; }
  CAIRN_GPU uint32_t row_bytes() const { return channels * bits / 8; }
  CAIRN_GPU uint32_t block_bytes() const { return codes_at() + kBlockRows * row_bytes(); }
};

}  // namespace cairn::shadow
