// SPDX-License-Identifier: Apache-2.0
//
// bfloat16 is the upper half of a float32: the form in which the cache holds K and V.

#pragma once

#include <bit>
#include <cstdint>

namespace cairn::llama {

// Rounds to nearest, ties to even. Values beyond the largest finite bf16 become infinite; a NaN
// stays a (quiet) NaN.
inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float FloatFromBf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace cairn::llama
