// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit formats, bf16 and fp16, to fp32 and back by integers alone: the same bits on every
// processor and card. Rounding to 16 bits is to nearest, ties to even; too large values become
// infinities, and a NaN stays one.
#pragma once

#include <cstdint>

#include "base/core/gpu_code.h"

namespace cairn {

CAIRN_GPU float FloatOfBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
CAIRN_GPU uint32_t BitsOfFloat(float value) { return __builtin_bit_cast(uint32_t, value); }

CAIRN_GPU float FromBf16(uint16_t bits) { return FloatOfBits(uint32_t{bits} << 16); }

CAIRN_GPU uint16_t ToBf16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // Stays one, quiet.
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

CAIRN_GPU float FromF16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return FloatOfBits(sign | 0x7F800000 | fraction << 13);
  if (exponent != 0) return FloatOfBits(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = static_cast<float>(fraction) * 0x1p-24F;  // Exact.
  return sign != 0 ? -value : value;
}

CAIRN_GPU uint16_t ToF16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const auto sign = static_cast<uint16_t>(bits >> 31 << 15);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // Rounds to infinity.
  if (magnitude < 0x38800000) {  // Subnormal: whole multiples of 2^-24.
    const uint32_t shift = 126 - (magnitude >> 23);
    if (shift > 24) return sign;
    const uint32_t fraction = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t half = 1u << (shift - 1), rest = fraction & ((1u << shift) - 1);
    uint32_t rounded = fraction >> shift;
    if (rest > half || (rest == half && (rounded & 1) != 0)) ++rounded;
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

// `fp16` says which of the two.
CAIRN_GPU float Widened(bool fp16, uint16_t bits) { return fp16 ? FromF16(bits) : FromBf16(bits); }
CAIRN_GPU uint16_t Narrowed(bool fp16, float value) { return fp16 ? ToF16(value) : ToBf16(value); }

// Widened(fp16, Narrowed(fp16, value)) in a few operations.
// REQUIRES: both are finite.
CAIRN_GPU float RoundedTo(bool fp16, float value) {
  const uint32_t bits = BitsOfFloat(value);
  if (!fp16) return FloatOfBits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
  const uint32_t sign = bits & 0x80000000, magnitude = bits ^ sign;
  if (magnitude < 0x38800000) {
    // From 0.5 to 1 numbers of fp32 are 2^-24 apart, as those of fp16 are below the normal ones.
    const float multiple = (FloatOfBits(magnitude) + 0.5F) - 0.5F;
    return FloatOfBits(BitsOfFloat(multiple) | sign);
  }
  return FloatOfBits(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1)) & ~0x1FFFu));
}

}  // namespace cairn
