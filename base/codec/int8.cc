// SPDX-License-Identifier: Apache-2.0
#include "base/codec/int8.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/core/check.h"

namespace cairn::internal {
namespace {

constexpr int32_t kLargestCode = 127;
constexpr int kCodeBits = 7;

Status Damaged(const std::string& what) {
  return Status(StatusCode::kCorruption, "KV frame: int8: " + what);
}

constexpr uint32_t MantissaBits(bool fp16) { return fp16 ? 10 : 7; }
// With a larger scale 127 units would be no finite element.
constexpr uint32_t LargestScale(bool fp16) { return fp16 ? 33 : 254; }

// An element is `units` times 2^shift of the smallest subnormal.
struct Magnitude {
  uint32_t units, shift;
};

constexpr Magnitude MagnitudeOf(bool fp16, uint32_t bits) {
  const uint32_t mantissa_bits = MantissaBits(fp16);
  const uint32_t exponent = (bits & 0x7fff) >> mantissa_bits;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  return exponent == 0 ? Magnitude{mantissa, 0}
                       : Magnitude{mantissa | 1u << mantissa_bits, exponent - 1};
}

// The least scale in which the element stays within half a unit of 127. -1: there is none.
int ScaleOf(bool fp16, uint32_t bits) {
  const Magnitude magnitude = MagnitudeOf(fp16, bits);
  uint32_t scale = static_cast<uint32_t>(
      std::max(0, static_cast<int>(std::bit_width(magnitude.units)) - kCodeBits));
  if (2 * magnitude.units > (2 * kLargestCode + 1u) << scale) ++scale;
  scale += magnitude.shift;
  const uint32_t not_finite = fp16 ? 0x7c00 : 0x7f80;
  return bits < not_finite && scale <= LargestScale(fp16) ? static_cast<int>(scale) : -1;
}

int8_t CodeOf(bool fp16, uint16_t bits, uint32_t scale) {
  const Magnitude magnitude = MagnitudeOf(fp16, bits);
  // For the element from which the scale was made, `scale` is not the smaller.
  const uint32_t down = std::min(scale - magnitude.shift, 31u);
  const uint32_t floor = magnitude.units >> down;
  const uint32_t rest = magnitude.units - (floor << down);
  const uint32_t half = (1u << down) / 2;
  const bool up = down > 0 && (rest > half || (rest == half && (floor & 1) != 0));
  const auto code = std::min(static_cast<int32_t>(floor + (up ? 1 : 0)), kLargestCode);
  return static_cast<int8_t>((bits & 0x8000) != 0 ? -code : code);
}

uint16_t ElementOf(bool fp16, int8_t code, uint32_t scale) {
  const uint32_t mantissa_bits = MantissaBits(fp16);
  const auto units = static_cast<uint32_t>(code < 0 ? -code : code);
  const auto width = static_cast<uint32_t>(std::bit_width(units));
  uint32_t bits;
  if (width + scale <= mantissa_bits) {  // Subnormal, or zero.
    bits = width == 0 ? 0 : units << scale;
  } else if (width == 0) {
    bits = 0;
  } else {
    const uint32_t mantissa = units << (mantissa_bits + 1 - width);  // With its top bit.
    bits = ((width + scale - mantissa_bits - 1) << mantissa_bits) + mantissa;
  }
  return static_cast<uint16_t>(bits | (code < 0 ? 0x8000 : 0));
}

uint16_t Load(const uint8_t* element) {
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return bits;
}

void Largest(const uint8_t* elements, size_t count, uint16_t* largest) {
  for (size_t i = 0; i < count; ++i) {
    largest[i] = std::max<uint16_t>(largest[i], Load(elements + 2 * i) & 0x7fff);
  }
}

void Quantise(bool fp16, const uint8_t* elements, const uint8_t* scales, size_t count,
              int8_t* codes) {
  for (size_t i = 0; i < count; ++i) codes[i] = CodeOf(fp16, Load(elements + 2 * i), scales[i]);
}

void Restore(bool fp16, const int8_t* codes, const uint8_t* scales, size_t count,
             uint8_t* elements) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = ElementOf(fp16, codes[i], scales[i]);
    std::memcpy(elements + 2 * i, &bits, sizeof(bits));
  }
}

// Elements whose scales are found together: a run of channels over all rows, or one row.
struct Block {
  uint32_t row = 0, rows = 0, channel = 0, channels = 0;
};
using Scales = std::array<uint8_t, kRun>;

uint32_t BlockCount(const FrameShape& shape, FrameScales scales) {
  return scales == FrameScales::kRow ? shape.rows
                                     : static_cast<uint32_t>((shape.channels - 1) / kRun + 1);
}

Block BlockAt(const FrameShape& shape, FrameScales scales, uint32_t index) {
  if (scales == FrameScales::kRow) return {index, 1, 0, shape.channels};
  const auto channel = static_cast<uint32_t>(index * kRun);
  return {0, shape.rows, channel, std::min(static_cast<uint32_t>(kRun), shape.channels - channel)};
}

// Calls use(first element of the run in the frame, count) for every run of the block; false as soon
// as a call returns false.
template <typename Use>
bool EachRun(const FrameShape& shape, const Block& block, const Use& use) {
  for (uint32_t row = block.row; row < block.row + block.rows; ++row) {
    for (uint32_t done = 0; done < block.channels; done += kRun) {
      const size_t first = size_t{row} * shape.channels + block.channel + done;
      if (!use(first, std::min<size_t>(kRun, block.channels - done))) return false;
    }
  }
  return true;
}

// The scale of each element of a run of the block. False: it cannot be quantised.
bool FindScales(const FrameShape& shape, FrameScales kind, const Block& block,
                const uint8_t* elements, const Int8Loops& loops, Scales* scales) {
  std::array<uint16_t, kRun> largest{};
  EachRun(shape, block, [&](size_t first, size_t count) {
    loops.largest(elements + 2 * first, count, largest.data());
    return true;
  });
  const bool fp16 = shape.dtype == Dtype::kF16;
  if (kind == FrameScales::kRow) {
    uint16_t row = 0;
    for (const uint16_t one : largest) row = std::max(row, one);
    const int scale = ScaleOf(fp16, row);
    scales->fill(static_cast<uint8_t>(scale));
    return scale >= 0;
  }
  for (size_t i = 0; i < block.channels; ++i) {
    const int scale = ScaleOf(fp16, largest[i]);
    if (scale < 0) return false;
    (*scales)[i] = static_cast<uint8_t>(scale);
  }
  return true;
}

size_t ScaleCount(const FrameShape& shape, FrameScales scales) {
  CAIRN_CHECK(scales != FrameScales::kNone);
  return scales == FrameScales::kRow ? shape.rows : shape.channels;
}

}  // namespace

const Int8Loops kScalarInt8Loops = {Largest, Quantise, Restore};

bool QuantiseElements(const FrameShape& shape, FrameScales kind, uint8_t* elements,
                      const Int8Loops& loops) {
  const bool fp16 = shape.dtype == Dtype::kF16;
  Scales scales{};
  for (uint32_t i = 0; i < BlockCount(shape, kind); ++i) {
    if (!FindScales(shape, kind, BlockAt(shape, kind, i), elements, loops, &scales)) return false;
  }
  for (uint32_t i = 0; i < BlockCount(shape, kind); ++i) {
    const Block block = BlockAt(shape, kind, i);
    CAIRN_CHECK(FindScales(shape, kind, block, elements, loops, &scales));
    EachRun(shape, block, [&](size_t first, size_t count) {
      std::array<int8_t, kRun> codes;
      loops.quantise(fp16, elements + 2 * first, scales.data(), count, codes.data());
      loops.restore(fp16, codes.data(), scales.data(), count, elements + 2 * first);
      return true;
    });
  }
  return true;
}

size_t Int8PayloadBytes(const FrameShape& shape, FrameScales scales) {
  return ScaleCount(shape, scales) + size_t{shape.rows} * shape.channels;
}

bool EncodeInt8(const FrameShape& shape, FrameScales kind, const uint8_t* elements, uint8_t* out,
                const Int8Loops& loops) {
  const bool fp16 = shape.dtype == Dtype::kF16;
  auto* const codes = reinterpret_cast<int8_t*>(out + ScaleCount(shape, kind));
  Scales scales{};
  for (uint32_t i = 0; i < BlockCount(shape, kind); ++i) {
    const Block block = BlockAt(shape, kind, i);
    if (!FindScales(shape, kind, block, elements, loops, &scales)) return false;
    if (kind == FrameScales::kRow) {
      out[block.row] = scales[0];
    } else {
      std::memcpy(out + block.channel, scales.data(), block.channels);
    }
    const bool exact = EachRun(shape, block, [&](size_t first, size_t count) {
      std::array<uint8_t, 2 * kRun> back;
      loops.quantise(fp16, elements + 2 * first, scales.data(), count, codes + first);
      loops.restore(fp16, codes + first, scales.data(), count, back.data());
      return std::memcmp(back.data(), elements + 2 * first, 2 * count) == 0;
    });
    if (!exact) return false;
  }
  return true;
}

Status DecodeInt8(const FrameShape& shape, FrameScales kind, std::span<const uint8_t> payload,
                  uint8_t* elements, const Int8Loops& loops) {
  const bool fp16 = shape.dtype == Dtype::kF16;
  if (payload.size() != Int8PayloadBytes(shape, kind)) {
    return Damaged(std::to_string(payload.size()) + " payload bytes, the shape needs " +
                   std::to_string(Int8PayloadBytes(shape, kind)));
  }
  const size_t scale_count = ScaleCount(shape, kind);
  for (size_t i = 0; i < scale_count; ++i) {
    if (payload[i] > LargestScale(fp16)) {
      return Damaged("scale " + std::to_string(i) + " is " + std::to_string(payload[i]));
    }
  }
  const std::span<const uint8_t> codes = payload.subspan(scale_count);
  if (std::memchr(codes.data(), 0x80, codes.size()) != nullptr) {
    return Damaged("an element of -128 units");
  }
  Scales scales{};
  for (uint32_t i = 0; i < BlockCount(shape, kind); ++i) {
    const Block block = BlockAt(shape, kind, i);
    if (kind == FrameScales::kRow) {
      scales.fill(payload[block.row]);
    } else {
      std::memcpy(scales.data(), payload.data() + block.channel, block.channels);
    }
    EachRun(shape, block, [&](size_t first, size_t count) {
      loops.restore(fp16, reinterpret_cast<const int8_t*>(codes.data()) + first, scales.data(),
                    count, elements + 2 * first);
      return true;
    });
  }
  return Status::Ok();
}

}  // namespace cairn::internal
