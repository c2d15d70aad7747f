// SPDX-License-Identifier: Apache-2.0
//
// kv64 for any processor. The wide path follows it statement by statement.
#include <array>

#include "base/codec/kv64.h"

namespace cairn::internal {
namespace {

uint32_t SignOf(uint16_t element) { return element >> 15; }

void SumExponents(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                  const Sampling& sampling, uint16_t* sums) {
  for (uint32_t i = 0; i < sampling.count; ++i) {
    const size_t line = sampling.first + size_t{i} * sampling.step;
    const uint8_t* at = elements + line * stripe.line_stride;
    for (uint32_t lane = 0; lane < stripe.lanes; ++lane) {
      sums[lane] = static_cast<uint16_t>(sums[lane] + ExponentOf(kind, LoadElement(at + 2 * lane)));
    }
  }
}

uint32_t DistanceOf(uint8_t reference, uint8_t exponent) {
  const auto below = static_cast<uint8_t>(reference - exponent);
  return below < kEscape ? below : kEscape;
}

void CountSymbols(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                  const Sampling& sampling, const uint8_t* reference, uint32_t* counts) {
  for (uint32_t i = 0; i < sampling.count; ++i) {
    const size_t line = sampling.first + size_t{i} * sampling.step;
    const uint8_t* at = elements + line * stripe.line_stride;
    for (uint32_t lane = 0; lane < stripe.lanes; ++lane) {
      const uint16_t element = LoadElement(at + 2 * lane);
      const uint32_t before =
          line == 0 ? 0 : SignOf(LoadElement(at - stripe.line_stride + 2 * lane));
      const uint32_t distance = DistanceOf(reference[lane], ExponentOf(kind, element));
      ++counts[distance + kDistances * (SignOf(element) ^ before)];
    }
  }
}

// The parts of the elements of one line that are stored as they are.
struct RawLine {
  std::array<uint8_t, kLanes> low{};  // bf16: sign and mantissa; fp16: the low byte.
  std::array<uint64_t, 3> planes{};   // fp16: mantissa bits 8 and 9, sign.
};

// 7-bit values, 8 to a group: all but the last `groups` lie in the low bits of a byte each, those
// are spread over the high bits.
void PackSevens(const uint8_t* values, size_t groups, uint8_t* to) {
  for (size_t i = 0; i < 7 * groups; ++i) {
    const int bit = values[7 * groups + i / 7] >> (i % 7) & 1;
    to[i] = static_cast<uint8_t>(values[i] | bit << 7);
  }
}

void UnpackSevens(const uint8_t* from, size_t groups, uint8_t* values) {
  for (size_t i = 0; i < groups; ++i) values[7 * groups + i] = 0;
  for (size_t i = 0; i < 7 * groups; ++i) {
    values[i] = from[i] & 0x7f;
    values[7 * groups + i / 7] |= static_cast<uint8_t>((from[i] >> 7) << (i % 7));
  }
}

void StoreRaw(Kv64Kind kind, const RawLine& raw, uint32_t lanes, bool carried, uint8_t* to) {
  const size_t groups = (lanes + 7) / 8;
  if (!carried && !kind.fp16 && kind.folded) {
    PackSevens(raw.low.data(), groups, to);
  } else if (!carried) {
    std::memcpy(to, raw.low.data(), lanes);
    to += lanes;
  }
  for (size_t p = 0; p < BitPlanes(kind); ++p, to += groups) {
    std::memcpy(to, &raw.planes[p], groups);
  }
}

void LoadRaw(Kv64Kind kind, const uint8_t* from, uint32_t lanes, bool carried, RawLine* raw) {
  const size_t groups = (lanes + 7) / 8;
  if (!carried && !kind.fp16 && kind.folded) {
    UnpackSevens(from, groups, raw->low.data());
  } else if (!carried) {
    std::memcpy(raw->low.data(), from, lanes);
    from += lanes;
  }
  for (size_t p = 0; p < BitPlanes(kind); ++p, from += groups) {
    raw->planes[p] = 0;
    std::memcpy(&raw->planes[p], from, groups);
  }
}

struct EncodeTable {
  std::array<uint8_t, kMaxSymbols> first{};     // Slot.
  std::array<uint8_t, kDistances> coded_as{};   // Distances without a frequency: the escape.
  std::array<uint32_t, kMaxSymbols> inverse{};  // 2^32 / frequency, rounded up.

  explicit EncodeTable(const StripeModel& model) {
    uint32_t slot = 0;
    for (uint32_t s = 0; s < kMaxSymbols; ++s) {
      const uint32_t frequency = model.frequency[s];
      first[s] = static_cast<uint8_t>(slot);
      slot += frequency;
      // A frequency of 1 needs 2^32, which does not fit; its quotient is taken apart below.
      if (frequency > 1)
        inverse[s] = static_cast<uint32_t>(((uint64_t{1} << 32) - 1) / frequency + 1);
    }
    for (uint32_t d = 0; d < kDistances; ++d) {
      coded_as[d] = model.frequency[d] > 0 ? static_cast<uint8_t>(d) : kEscape;
    }
  }
};

// Encodes `line`; false when there is no room.
template <bool kFp16, bool kFolded>
bool EncodeStripe(const uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                  uint8_t* raw_plane, EncodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  const EncodeTable table(model);
  const size_t raw_line_bytes = RawLineBytes(kind, stripe.lanes, false);
  for (uint32_t line = stripe.lines; line-- > 0;) {
    if (state->stream - state->escapes < kEncodeSlack) return false;
    const bool is_last = line + 1 == stripe.lines;
    const uint32_t lanes = is_last ? stripe.last_lanes : stripe.lanes;
    const uint8_t* at = elements + line * stripe.line_stride;
    RawLine raw;
    std::array<uint8_t, kLanes> symbols;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const uint16_t element = LoadElement(at + 2 * lane);
      const uint8_t exponent = ExponentOf(kind, element);
      const uint8_t distance = table.coded_as[DistanceOf(model.reference[lane], exponent)];
      if (distance == kEscape) *state->escapes++ = exponent;
      uint32_t sign = SignOf(element);
      raw.low[lane] = LowPartOf(kind, element);
      if (kFp16) {
        raw.planes[0] |= uint64_t{element >> 8 & 1u} << lane;
        raw.planes[1] |= uint64_t{element >> 9 & 1u} << lane;
        if (!kFolded) raw.planes[2] |= uint64_t{sign} << lane;
      }
      if (kFolded && line > 0) sign ^= SignOf(LoadElement(at - stripe.line_stride + 2 * lane));
      symbols[lane] = static_cast<uint8_t>(distance + (kFolded ? kDistances * sign : 0));
    }
    StoreRaw(kind, raw, lanes, is_last && stripe.carries, raw_plane + line * raw_line_bytes);

    // The bytes of a line stand in the order of its lanes.
    for (uint32_t lane = lanes; lane-- > 0;) {
      const uint32_t symbol = symbols[lane];
      const uint32_t frequency = model.frequency[symbol];
      uint32_t x = state->low[lane] | uint32_t{state->high[lane]} << 8;
      if (x >= frequency << 8) {
        *--state->stream = static_cast<uint8_t>(x);
        x >>= 8;
      }
      const uint32_t quotient =
          frequency == 1 ? x : static_cast<uint32_t>(uint64_t{x} * table.inverse[symbol] >> 32);
      state->low[lane] = static_cast<uint8_t>(x - quotient * frequency + table.first[symbol]);
      state->high[lane] = static_cast<uint8_t>(quotient);
    }
  }
  return true;
}

struct Slot {
  uint8_t symbol, frequency, offset;  // The slot's place among those of its symbol.
};

template <bool kFp16, bool kFolded>
DecodeFault DecodeStripe(uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                         const uint8_t* raw_plane, DecodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  std::array<Slot, kSlots> slots;
  for (uint32_t s = 0, slot = 0; s < kMaxSymbols; ++s) {
    for (uint32_t i = 0; i < model.frequency[s]; ++i) {
      slots[slot++] = {static_cast<uint8_t>(s), model.frequency[s], static_cast<uint8_t>(i)};
    }
  }
  std::array<uint32_t, kLanes> states;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    states[lane] = state->low[lane] | uint32_t{state->high[lane]} << 8;
  }
  const size_t raw_line_bytes = RawLineBytes(kind, stripe.lanes, false);
  std::array<uint8_t, kLanes> signs{};
  RawLine raw;
  const uint8_t* stream = state->stream;
  for (uint32_t line = 0; line < stripe.lines; ++line) {
    const bool is_last = line + 1 == stripe.lines;
    const uint32_t lanes = is_last ? stripe.last_lanes : stripe.lanes;
    std::array<uint8_t, kLanes> symbols;
    uint32_t escapes = 0;
    // A line takes at most one byte a lane. Without a branch on the data while so many are left.
    const bool near_end = state->stream_end - stream < static_cast<ptrdiff_t>(kLanes);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const Slot& slot = slots[states[lane] & 0xff];
      uint32_t x = slot.frequency * (states[lane] >> 8) + slot.offset;
      const bool refill = x < kLowState;
      if (near_end) {
        if (refill && stream == state->stream_end) return DecodeFault::kStreamEnds;
        if (refill) x = x << 8 | *stream;
      } else {
        x = refill ? x << 8 | *stream : x;
      }
      stream += refill;
      states[lane] = x;
      symbols[lane] = slot.symbol;
      escapes += slot.symbol % kDistances == kEscape;
    }
    if (static_cast<ptrdiff_t>(escapes) > state->escapes - state->escapes_begin) {
      return DecodeFault::kEscapesEnd;
    }
    state->escapes -= escapes;

    const bool carried = is_last && stripe.carries;
    if (carried) {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        raw.low[lane] = static_cast<uint8_t>(states[lane]);
      }
    }
    LoadRaw(kind, raw_plane + line * raw_line_bytes, lanes, carried, &raw);
    const uint8_t* escape = state->escapes;
    uint8_t* to = elements + line * stripe.line_stride;
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const uint32_t distance = symbols[lane] % kDistances;
      auto exponent = static_cast<uint8_t>(model.reference[lane] - distance);
      if (escapes > 0 && distance == kEscape) exponent = *escape++;
      signs[lane] ^= symbols[lane] / kDistances;
      uint32_t element;
      if (kFp16) {
        const uint32_t sign = kFolded ? signs[lane] : raw.planes[2] >> lane & 1;
        element = raw.low[lane] | (raw.planes[0] >> lane & 1) << 8 |
                  (raw.planes[1] >> lane & 1) << 9 | (exponent & 31u) << 10 | sign << 15;
      } else {
        const uint32_t sign = kFolded ? signs[lane] : raw.low[lane] >> 7;
        element = (raw.low[lane] & 0x7fu) | uint32_t{exponent} << 7 | sign << 15;
      }
      const auto stored = static_cast<uint16_t>(element);
      std::memcpy(to + 2 * lane, &stored, sizeof(stored));
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    state->low[lane] = static_cast<uint8_t>(states[lane]);
    state->high[lane] = static_cast<uint8_t>(states[lane] >> 8);
  }
  state->stream = stream;
  return DecodeFault::kNone;
}

bool Encode(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe, const StripeModel& model,
            uint8_t* raw_plane, EncodeState* state) {
  const auto encode = kind.fp16
                          ? (kind.folded ? EncodeStripe<true, true> : EncodeStripe<true, false>)
                          : (kind.folded ? EncodeStripe<false, true> : EncodeStripe<false, false>);
  return encode(elements, stripe, model, raw_plane, state);
}

DecodeFault Decode(Kv64Kind kind, uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                   const uint8_t* raw_plane, DecodeState* state) {
  const auto decode = kind.fp16
                          ? (kind.folded ? DecodeStripe<true, true> : DecodeStripe<true, false>)
                          : (kind.folded ? DecodeStripe<false, true> : DecodeStripe<false, false>);
  return decode(elements, stripe, model, raw_plane, state);
}

}  // namespace

constinit const Kv64Loops kScalarLoops{SumExponents, CountSymbols, Encode, Decode};

}  // namespace cairn::internal
