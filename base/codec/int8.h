// SPDX-License-Identifier: Apache-2.0
//
// The codec of 8-bit frames: elements that are whole multiples, -127 to 127, of a power of two that
// all elements of their channel or row share. Used by base/codec/kv_frame.h alone. Layout and
// reasons: base/codec/FORMAT.md.
//
// Magnitudes are computed as integers, in units of the smallest subnormal: the result does not
// depend on the rounding mode of the caller's thread, or on whether it flushes subnormals to zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/codec/kv_frame.h"
#include "cairn/status.h"

namespace cairn::internal {

// Elements that are handled at once: neighbours in one row, with a scale each.
inline constexpr size_t kRun = 64;

// The loops, once for each kind of processor. `count` is 1 to kRun; elements need no alignment.
struct Int8Loops {
  // largest[i] = the larger of it and the bits of element i without its sign.
  void (*largest)(const uint8_t* elements, size_t count, uint16_t* largest);
  // codes[i] = element i in units of 2^scales[i] subnormals, rounded to the nearest, ties to even,
  // and held within -127 to 127. Elements must be finite.
  void (*quantise)(bool fp16, const uint8_t* elements, const uint8_t* scales, size_t count,
                   int8_t* codes);
  // The elements of codes from -127 to 127. Scales within the limits of the format.
  void (*restore)(bool fp16, const int8_t* codes, const uint8_t* scales, size_t count,
                  uint8_t* elements);
};
extern const Int8Loops kScalarInt8Loops;
extern const Int8Loops kAvx512Int8Loops;  // Needs AVX-512 F, BW and VL.

// Rounds the elements in place. False, and nothing is changed, when one is not finite or too large.
bool QuantiseElements(const FrameShape& shape, FrameScales scales, uint8_t* elements,
                      const Int8Loops& loops);

size_t Int8PayloadBytes(const FrameShape& shape, FrameScales scales);

// The payload of a frame, Int8PayloadBytes of it; false when some element is not a multiple.
bool EncodeInt8(const FrameShape& shape, FrameScales scales, const uint8_t* elements, uint8_t* out,
                const Int8Loops& loops);
Status DecodeInt8(const FrameShape& shape, FrameScales scales, std::span<const uint8_t> payload,
                  uint8_t* elements, const Int8Loops& loops);

}  // namespace cairn::internal
