// SPDX-License-Identifier: Apache-2.0
//
// Internals of kv64, shared by kv_frame.cc and the code paths; base/codec/FORMAT.md explains the
// bytes. Use base/codec/kv_frame.h from elsewhere.
//
// A frame of 16-bit elements is cut into stripes of up to 64 channels, a stripe into lines of one
// row each; coder i of 64 takes the i-th element of each line. When 64 is a multiple of the
// channels, all rows are one stripe and a line takes several of them, so that no lane idles. There
// are two sets of coders, for even and for odd lines: a processor works on both at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/codec/kv_frame.h"

namespace cairn::internal {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie");

inline constexpr uint32_t kLanes = 64;
// Symbols: how far the exponent lies below the reference, 0 to 14, or "not in that range".
inline constexpr uint32_t kDistances = 16;
inline constexpr uint8_t kEscape = kDistances - 1;
// With folded signs, 16 more: the same with a sign that differs from the line before.
inline constexpr uint32_t kMaxSymbols = 2 * kDistances;
// Frequencies sum to 256, so that a slot is a byte and the table of slots fits four registers.
inline constexpr uint32_t kSlots = 256;
// States are 16 bits wide and at least this, renormalised by bytes.
inline constexpr uint32_t kLowState = 256;
inline constexpr uint32_t kSets = 2;
inline constexpr size_t kStateBytes = kSets * 2 * kLanes;

struct Kv64Kind {
  bool fp16 = false;  // Else bf16.
  bool folded = false;
};

// Calls loop.operator()<fp16, folded>().
template <typename Loop>
auto ForKind(Kv64Kind kind, const Loop& loop) {
  if (kind.fp16) {
    return kind.folded ? loop.template operator()<true, true>()
                       : loop.template operator()<true, false>();
  }
  return kind.folded ? loop.template operator()<false, true>()
                     : loop.template operator()<false, false>();
}

// Bits of an element that are stored as they are, beyond the 8 (bf16 with folded signs: 7) that go
// byte by byte: bit-planes.
constexpr uint32_t BitPlanes(Kv64Kind kind) { return kind.fp16 ? (kind.folded ? 2 : 3) : 0; }

// Bytes of the raw bits of a line of `lanes`. `carried`: the byte-by-byte part is somewhere else.
constexpr size_t RawLineBytes(Kv64Kind kind, uint32_t lanes, bool carried) {
  const size_t groups = (lanes + 7) / 8;
  const size_t low = !kind.fp16 && kind.folded ? 7 * groups : lanes;
  return (carried ? 0 : low) + BitPlanes(kind) * groups;
}

// The place of a stripe and its lines. `lines` is 1 or more; all have `lanes` elements except the
// last, which may have fewer.
struct Stripe {
  size_t first_byte = 0;   // In the raw frame.
  size_t line_stride = 0;  // In bytes.
  uint32_t lines = 0;
  uint32_t lanes = 0;
  uint32_t last_lanes = 0;
  uint32_t channels = 0;  // Lane i belongs to channel i % channels.
  // The byte-by-byte parts of the last lines, one for each set, travel in the initial states of the
  // encoder.
  bool carries = false;

  uint32_t LanesOf(uint32_t line) const { return line + 1 == lines ? last_lanes : lanes; }
  bool Carried(uint32_t line) const { return carries && line + kSets >= lines; }
  // Where the raw bits of a line begin; for line `lines`, the end of the last.
  size_t RawOffset(Kv64Kind kind, uint32_t line) const {
    const uint32_t stored = carries ? lines - std::min(lines, kSets) : lines - 1;
    size_t offset = std::min(line, stored) * RawLineBytes(kind, lanes, false);
    for (uint32_t i = stored; i < line; ++i) offset += RawLineBytes(kind, LanesOf(i), Carried(i));
    return offset;
  }
  size_t RawBytes(Kv64Kind kind) const { return RawOffset(kind, lines); }
  // The first this many lines take all lanes and are not carried.
  uint32_t PlainLines() const {
    if (lanes < kLanes) return 0;
    return carries ? lines - std::min(lines, kSets) : last_lanes < lanes ? lines - 1 : lines;
  }
};

uint32_t StripeCount(const FrameShape& shape);
Stripe StripeAt(const FrameShape& shape, uint32_t index);

// One reference exponent per lane, and the frequencies. Frequencies sum to 256, each <= 255.
struct StripeModel {
  alignas(64) std::array<uint8_t, kLanes> reference{};
  alignas(64) std::array<uint8_t, kMaxSymbols> frequency{};
};

// Lines from which the model is made: `count` of them, from `first` on, `step` apart.
struct Sampling {
  uint32_t first = 0, step = 1, count = 0;
};

// The states of 64 coders, low and high bytes apart.
struct CoderSet {
  alignas(64) std::array<uint8_t, kLanes> low{}, high{};
};
struct EncodeState {
  std::array<CoderSet, kSets> sets{};
  uint8_t* stream = nullptr;   // Grows downwards; points at its first byte.
  uint8_t* escapes = nullptr;  // Grows upwards; points behind its last byte.
};
struct DecodeState {
  std::array<CoderSet, kSets> sets{};
  const uint8_t* stream = nullptr;  // Read upwards to stream_end.
  const uint8_t* stream_end = nullptr;
  const uint8_t* escapes_begin = nullptr;
  const uint8_t* escapes = nullptr;  // Read downwards to escapes_begin.
};

enum class DecodeFault { kNone, kStreamEnds, kEscapesEnd };

// The loops, once for each kind of processor. `elements` is the first element of the stripe.
struct Kv64Loops {
  // For at most 255 sampled lines: sums[lane], the sum of its exponents.
  void (*sum_exponents)(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                        const Sampling& sampling, uint16_t* sums);
  // Adds the symbols of at most 255 sampled lines to counts[], as if all had a frequency.
  void (*count_symbols)(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                        const Sampling& sampling, const uint8_t* reference, uint32_t* counts);
  // Codes a stripe, last line first. False when stream and escapes are about to meet.
  bool (*encode)(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                 const StripeModel& model, uint8_t* raw_plane, EncodeState* state);
  DecodeFault (*decode)(Kv64Kind kind, uint8_t* elements, const Stripe& stripe,
                        const StripeModel& model, const uint8_t* raw_plane, DecodeState* state);
};
extern const Kv64Loops kScalarLoops;
extern const Kv64Loops kAvx512Loops;  // Needs AVX-512 F, BW, VL, DQ, VBMI, VBMI2 and BMI2.

// Bytes that two lines may add to stream and escapes; wider paths store whole registers.
inline constexpr ptrdiff_t kEncodeSlack = 4 * kLanes;

// How frames are modelled (kv64_model.cc). Integers only: the same bytes on every machine.
//
// Chooses the flags that an estimate from a few lines finds cheapest.
uint8_t ChooseFlags(const FrameShape& shape, const uint8_t* raw, const Kv64Loops& loops);
StripeModel MakeModel(const Stripe& stripe, Kv64Kind kind, bool channel_base, const uint8_t* raw,
                      const Kv64Loops& loops);

// The payload of a frame. Encode returns 0 if it does not fit into `out`.
size_t EncodeKv64(const FrameShape& shape, uint8_t flags, const uint8_t* raw,
                  std::span<uint8_t> out, const Kv64Loops& loops);
Status DecodeKv64(const FrameShape& shape, uint8_t flags, std::span<const uint8_t> payload,
                  uint8_t* out, const Kv64Loops& loops);

inline uint16_t LoadElement(const uint8_t* bytes) {
  uint16_t element;
  std::memcpy(&element, bytes, sizeof(element));
  return element;
}

// Exponent and byte-by-byte part of an element.
constexpr uint8_t ExponentOf(Kv64Kind kind, uint16_t element) {
  return static_cast<uint8_t>(kind.fp16 ? (element >> 10) & 31 : (element >> 7) & 255);
}
constexpr uint8_t LowPartOf(Kv64Kind kind, uint16_t element) {
  if (kind.fp16) return static_cast<uint8_t>(element);
  const int sign = kind.folded ? 0 : (element >> 8) & 0x80;
  return static_cast<uint8_t>((element & 0x7f) | sign);
}

}  // namespace cairn::internal
