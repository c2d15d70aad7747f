// SPDX-License-Identifier: Apache-2.0
//
// kv64 for any processor. The wide path follows it statement by statement.
#include <algorithm>
#include <array>

#include "base/codec/kv64.h"

namespace cairn::internal {
namespace {

uint32_t SignOf(uint16_t element) { return element >> 15; }

void SumExponents(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                  const Sampling& sampling, uint16_t* sums) {
  std::fill_n(sums, kLanes, uint16_t{0});
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
      uint32_t symbol = DistanceOf(reference[lane], ExponentOf(kind, element));
      if (kind.folded) {
        const uint8_t* before = at - stripe.line_stride + 2 * lane;
        symbol += kDistances * (SignOf(element) ^ (line == 0 ? 0 : SignOf(LoadElement(before))));
      }
      ++counts[symbol];
    }
  }
}

// The raw parts of the elements of one line.
struct RawLine {
  std::array<uint8_t, kLanes> low{};  // bf16: sign and mantissa; fp16: the low byte.
  std::array<uint64_t, 3> planes{};   // fp16: mantissa bits 8 and 9, sign.
};

// 7-bit values, 8 to a group: all but the last `groups` lie in the low bits of a byte each, those
// are spread over the high bits.
void PackSevens(const uint8_t* values, size_t groups, uint8_t* to) {
  uint64_t spread = 0;
  for (size_t i = 0; i < groups; ++i) spread |= uint64_t{values[7 * groups + i]} << 7 * i;
  for (size_t i = 0; i < 7 * groups; ++i) {
    to[i] = static_cast<uint8_t>(values[i] | (spread >> i & 1) << 7);
  }
}

void UnpackSevens(const uint8_t* from, size_t groups, uint8_t* values) {
  std::array<uint8_t, kLanes> packed{};
  std::memcpy(packed.data(), from, 7 * groups);
  for (size_t i = 0; i < kLanes; ++i) values[i] = packed[i] & 0x7f;
  for (size_t i = 0; i < groups; ++i) {
    // The high bits of 7 bytes side by side: the products of the multiplication do not overlap.
    uint64_t bytes;
    std::memcpy(&bytes, packed.data() + 7 * i, sizeof(bytes));
    bytes = bytes >> 7 & 0x0001010101010101;
    values[7 * groups + i] = bytes * 0x0102040810204080 >> 56 & 0x7f;
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

template <bool kFp16, bool kFolded>
bool EncodeStripe(const uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                  uint8_t* raw_plane, EncodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  const EncodeTable table(model);
  const uint32_t plain = stripe.PlainLines() & ~1u;
  for (uint32_t line = stripe.lines; line-- > 0;) {
    // The wide path checks here, as it takes two plain lines at a time.
    const bool look = line >= plain || line % 2 == 1;
    if (look && state->stream - state->escapes < kEncodeSlack) return false;
    const uint32_t lanes = stripe.LanesOf(line);
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
    StoreRaw(kind, raw, lanes, stripe.Carried(line), raw_plane + stripe.RawOffset(kind, line));

    CoderSet& set = state->sets[line % kSets];
    uint8_t* stream = state->stream;
    // The bytes of a line stand in the order of its lanes.
    for (uint32_t lane = lanes; lane-- > 0;) {
      const uint32_t symbol = symbols[lane];
      const uint32_t frequency = model.frequency[symbol];
      uint32_t x = set.low[lane] | uint32_t{set.high[lane]} << 8;
      // Arithmetic, because a branch would be unpredictable. A byte that is not kept lies in free
      // room.
      const uint32_t emit = x >= frequency << 8;
      stream[-1] = static_cast<uint8_t>(x);
      stream -= emit;
      x >>= 8 * emit;
      const uint32_t quotient =
          frequency == 1 ? x : static_cast<uint32_t>(uint64_t{x} * table.inverse[symbol] >> 32);
      set.low[lane] = static_cast<uint8_t>(x - quotient * frequency + table.first[symbol]);
      set.high[lane] = static_cast<uint8_t>(quotient);
    }
    state->stream = stream;
  }
  return true;
}

// The meaning of a slot in one word: symbol, frequency, and the slot's place among the symbol's.
constexpr uint32_t MakeSlot(uint32_t symbol, uint32_t frequency, uint32_t place) {
  return symbol | frequency << 8 | place << 16;
}

// Longer than other functions: parts of this loop as functions would carry its state through
// memory.
template <bool kFp16, bool kFolded>
DecodeFault DecodeStripe(uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                         const uint8_t* raw_plane, DecodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  std::array<uint32_t, kSlots> slots;
  for (uint32_t s = 0, slot = 0; s < kMaxSymbols; ++s) {
    for (uint32_t i = 0; i < model.frequency[s]; ++i) {
      slots[slot++] = MakeSlot(s, model.frequency[s], i);
    }
  }
  std::array<std::array<uint32_t, kLanes>, kSets> states;
  for (uint32_t i = 0; i < kSets; ++i) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      states[i][lane] = state->sets[i].low[lane] | uint32_t{state->sets[i].high[lane]} << 8;
    }
  }
  std::array<uint8_t, kLanes> signs{}, symbols{}, exponents{};
  std::array<uint16_t, kLanes> line_elements;
  RawLine raw;
  const uint8_t* stream = state->stream;
  for (uint32_t line = 0; line < stripe.lines; ++line) {
    const uint32_t lanes = stripe.LanesOf(line);
    uint32_t* const x_of = states[line % kSets].data();
    // A line takes at most one byte per lane. While that many bytes are left, no branch depends on
    // the data.
    if (state->stream_end - stream >= static_cast<ptrdiff_t>(kLanes)) {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const uint32_t slot = slots[x_of[lane] & 0xff];
        const uint32_t x = (slot >> 8 & 0xff) * (x_of[lane] >> 8) + (slot >> 16);
        // Arithmetic, because compilers turn a choice into a branch, which would be unpredictable.
        const uint32_t refill = x < kLowState;
        x_of[lane] = x << 8 * refill | (*stream & (0u - refill));
        stream += refill;
        symbols[lane] = static_cast<uint8_t>(slot);
      }
    } else {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const uint32_t slot = slots[x_of[lane] & 0xff];
        uint32_t x = (slot >> 8 & 0xff) * (x_of[lane] >> 8) + (slot >> 16);
        if (x < kLowState) {
          if (stream == state->stream_end) return DecodeFault::kStreamEnds;
          x = x << 8 | *stream++;
        }
        x_of[lane] = x;
        symbols[lane] = static_cast<uint8_t>(slot);
      }
    }

    // Loops over all lanes, idle ones included, are the ones that compilers make vectors of.
    uint8_t escapes = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint8_t distance = symbols[lane] & (kDistances - 1);
      exponents[lane] = static_cast<uint8_t>(model.reference[lane] - distance);
      escapes |= static_cast<uint8_t>(distance == kEscape);
      signs[lane] ^= static_cast<uint8_t>(symbols[lane] >> 4);
    }
    static_assert(kDistances == 1 << 4);
    if (escapes != 0) {
      const auto is_escape = [](uint8_t symbol) { return symbol % kDistances == kEscape; };
      const auto count = std::count_if(symbols.begin(), symbols.begin() + lanes, is_escape);
      if (count > state->escapes - state->escapes_begin) return DecodeFault::kEscapesEnd;
      state->escapes -= count;
      for (uint32_t lane = 0, taken = 0; lane < lanes; ++lane) {
        if (is_escape(symbols[lane])) exponents[lane] = state->escapes[taken++];
      }
    }

    const bool carried = stripe.Carried(line);
    for (uint32_t lane = 0; carried && lane < lanes; ++lane) {
      raw.low[lane] = static_cast<uint8_t>(x_of[lane]);
    }
    LoadRaw(kind, raw_plane + stripe.RawOffset(kind, line), lanes, carried, &raw);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t exponent = exponents[lane], low = raw.low[lane];
      uint32_t element;
      if (kFp16) {
        const auto bit = [&](size_t p) { return static_cast<uint32_t>(raw.planes[p] >> lane & 1); };
        element = low | bit(0) << 8 | bit(1) << 9 | (exponent & 31) << 10 |
                  (kFolded ? signs[lane] : bit(2)) << 15;
      } else {
        element = (low & 0x7f) | exponent << 7 | (kFolded ? signs[lane] : low >> 7) << 15;
      }
      line_elements[lane] = static_cast<uint16_t>(element);
    }
    std::memcpy(elements + line * stripe.line_stride, line_elements.data(), 2 * lanes);
  }
  for (uint32_t i = 0; i < kSets; ++i) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      state->sets[i].low[lane] = static_cast<uint8_t>(states[i][lane]);
      state->sets[i].high[lane] = static_cast<uint8_t>(states[i][lane] >> 8);
    }
  }
  state->stream = stream;
  return DecodeFault::kNone;
}

bool Encode(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe, const StripeModel& model,
            uint8_t* raw_plane, EncodeState* state) {
  return ForKind(kind, [&]<bool kFp16, bool kFolded>() {
    return EncodeStripe<kFp16, kFolded>(elements, stripe, model, raw_plane, state);
  });
}

DecodeFault Decode(Kv64Kind kind, uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                   const uint8_t* raw_plane, DecodeState* state) {
  return ForKind(kind, [&]<bool kFp16, bool kFolded>() {
    return DecodeStripe<kFp16, kFolded>(elements, stripe, model, raw_plane, state);
  });
}

}  // namespace

constinit const Kv64Loops kScalarLoops{SumExponents, CountSymbols, Encode, Decode};

}  // namespace cairn::internal
