// SPDX-License-Identifier: Apache-2.0
//
// kv64 with a lane in each byte of a 512-bit register. States are kept as two registers, of low and
// of high bytes, in the order of the lanes: slot look-up, renormalisation and the compression of
// renormalised bytes then work on them directly, and only the multiplication goes to 16-bit words,
// the even and the odd lanes apart.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own header initialises its "undefined" vectors with themselves and then warns about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "base/codec/kv64.h"

#define CAIRN_INLINE inline __attribute__((always_inline))

namespace cairn::internal {
namespace {

constexpr __mmask64 kOddBytes = 0xaaaaaaaaaaaaaaaa;
constexpr uint64_t kSevens = 0x7f7f7f7f7f7f7f7f;

// The low `count` bits set; count <= 64.
CAIRN_INLINE uint64_t Low(size_t count) {
  return _bzhi_u64(~uint64_t{0}, static_cast<uint32_t>(count));
}

// Rows of a table of 64 bytes or less.
CAIRN_INLINE __m512i Bytes(const void* from) { return _mm512_loadu_si512(from); }

// Low and high bytes of 64 elements, from lanes of words and back. The packing works within 128
// bits, so quadwords are put right afterwards or before.
struct LowHigh {
  __m512i low, high;
};

template <bool kFull>
CAIRN_INLINE LowHigh LoadLine(const uint8_t* at, uint32_t lanes) {
  __m512i a, b;
  if constexpr (kFull) {
    a = Bytes(at);
    b = Bytes(at + 64);
  } else {
    const uint64_t mask = Low(lanes);
    a = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), at);
    b = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask >> 32), at + 64);
  }
  const __m512i byte = _mm512_set1_epi16(0xff);
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512i low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
  const __m512i high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  return {_mm512_permutexvar_epi64(order, low), _mm512_permutexvar_epi64(order, high)};
}

template <bool kFull>
CAIRN_INLINE void StoreLine(const LowHigh& bytes, uint8_t* at, uint32_t lanes) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i low = _mm512_permutexvar_epi64(order, bytes.low);
  const __m512i high = _mm512_permutexvar_epi64(order, bytes.high);
  const __m512i a = _mm512_unpacklo_epi8(low, high);
  const __m512i b = _mm512_unpackhi_epi8(low, high);
  if constexpr (kFull) {
    _mm512_storeu_si512(at, a);
    _mm512_storeu_si512(at + 64, b);
  } else {
    const uint64_t mask = Low(lanes);
    _mm512_mask_storeu_epi16(at, static_cast<__mmask32>(mask), a);
    _mm512_mask_storeu_epi16(at + 64, static_cast<__mmask32>(mask >> 32), b);
  }
}

template <bool kFp16>
CAIRN_INLINE __m512i Exponents(const LowHigh& line) {
  if constexpr (kFp16) {
    return _mm512_and_si512(_mm512_srli_epi16(line.high, 2), _mm512_set1_epi8(31));
  } else {
    const __m512i last = _mm512_and_si512(_mm512_srli_epi16(line.low, 7), _mm512_set1_epi8(1));
    return _mm512_or_si512(_mm512_add_epi8(line.high, line.high), last);
  }
}

CAIRN_INLINE __m512i Distances(__m512i reference, __m512i exponents) {
  return _mm512_min_epu8(_mm512_sub_epi8(reference, exponents), _mm512_set1_epi8(kEscape));
}

template <bool kFp16>
void SumLines(const uint8_t* elements, const Stripe& stripe, const Sampling& sampling,
              uint16_t* sums) {
  constexpr uint32_t kMantissaBits = kFp16 ? 10 : 7;
  const __m512i mask = _mm512_set1_epi16(kFp16 ? 31 : 255);
  const uint64_t active = Low(stripe.lanes);
  const auto exponents = [&](const uint8_t* at, uint64_t half) {
    const __m512i words = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(half), at);
    return _mm512_and_si512(_mm512_srli_epi16(words, kMantissaBits), mask);
  };
  __m512i a = _mm512_setzero_si512(), b = a;
  for (uint32_t i = 0; i < sampling.count; ++i) {
    const size_t line = sampling.first + size_t{i} * sampling.step;
    const uint8_t* at = elements + line * stripe.line_stride;
    a = _mm512_add_epi16(a, exponents(at, active));
    b = _mm512_add_epi16(b, exponents(at + 64, active >> 32));
  }
  _mm512_storeu_si512(sums, a);
  _mm512_storeu_si512(sums + 32, b);
}

// Lanes count apart in bytes; 16 symbols at a time, so that the counters stay in registers.
template <bool kFp16, bool kFolded>
void CountLines(const uint8_t* elements, const Stripe& stripe, const Sampling& sampling,
                const uint8_t* reference, uint32_t* counts) {
  const __m512i references = Bytes(reference);
  const __m512i one = _mm512_set1_epi8(1);
  const uint64_t active = Low(stripe.lanes);
  for (uint32_t begin = 0; begin < (kFolded ? kMaxSymbols : kDistances); begin += kDistances) {
    __m512i seen[kDistances];
    for (__m512i& counter : seen) counter = _mm512_setzero_si512();
    for (uint32_t i = 0; i < sampling.count; ++i) {
      const size_t line = sampling.first + size_t{i} * sampling.step;
      const uint8_t* at = elements + line * stripe.line_stride;
      const LowHigh bytes = LoadLine<false>(at, stripe.lanes);
      __m512i symbols = Distances(references, Exponents<kFp16>(bytes));
      if constexpr (kFolded) {
        __m512i flips = bytes.high;
        if (line > 0) {
          const __m512i before = LoadLine<false>(at - stripe.line_stride, stripe.lanes).high;
          flips = _mm512_xor_si512(flips, before);
        }
        symbols = _mm512_mask_add_epi8(symbols, _mm512_movepi8_mask(flips), symbols,
                                       _mm512_set1_epi8(kDistances));
      }
#pragma GCC unroll 16
      for (uint32_t s = 0; s < kDistances; ++s) {
        const __m512i symbol = _mm512_set1_epi8(static_cast<char>(begin + s));
        const uint64_t here = _mm512_mask_cmpeq_epi8_mask(active, symbols, symbol);
        seen[s] = _mm512_mask_add_epi8(seen[s], here, seen[s], one);
      }
    }
    for (uint32_t s = 0; s < kDistances; ++s) {
      const __m512i sums = _mm512_sad_epu8(seen[s], _mm512_setzero_si512());
      counts[begin + s] += static_cast<uint32_t>(_mm512_reduce_add_epi64(sums));
    }
  }
}

// The raw bits. `low` holds the byte-by-byte part; `high` the high bytes of the elements, whose low
// two bits are fp16's mantissa bits.
template <bool kFp16, bool kFolded, bool kFull>
CAIRN_INLINE void StoreRaw(__m512i low, __m512i high, uint32_t lanes, bool carried, uint8_t* to) {
  const size_t groups = kFull ? 8 : (lanes + 7) / 8;
  if (!carried) {
    if constexpr (!kFp16 && kFolded) {
      const size_t kept = 7 * groups;
      const __m512i rest = _mm512_maskz_compress_epi8(Low(groups) << kept, low);
      const auto last = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(rest)));
      const __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
      low = _mm512_mask_add_epi8(low, _pext_u64(last, kSevens), low, top);
      _mm512_mask_storeu_epi8(to, Low(kept), low);
    } else {
      if constexpr (kFull) {
        _mm512_storeu_si512(to, low);
      } else {
        _mm512_mask_storeu_epi8(to, Low(lanes), low);
      }
      to += lanes;
    }
  }
  if constexpr (kFp16) {
    const std::array<uint64_t, 3> planes = {_mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
                                            _mm512_test_epi8_mask(high, _mm512_set1_epi8(2)),
                                            _mm512_movepi8_mask(high)};
    for (size_t p = 0; p < BitPlanes({kFp16, kFolded}); ++p) {
      std::memcpy(to + p * groups, &planes[p], groups);
    }
  }
}

template <bool kFp16, bool kFolded, bool kFull>
CAIRN_INLINE __m512i LoadLow(const uint8_t* from, uint32_t lanes) {
  if constexpr (!kFp16 && kFolded) {
    const size_t groups = kFull ? 8 : (lanes + 7) / 8;
    const size_t kept = 7 * groups;
    const __m512i packed = _mm512_maskz_loadu_epi8(Low(kept), from);
    const __m512i low = _mm512_and_si512(packed, _mm512_set1_epi8(0x7f));
    const uint64_t last = _pdep_u64(_mm512_movepi8_mask(packed), kSevens);
    if constexpr (kFull) {
      return _mm512_mask_set1_epi64(low, 0x80, static_cast<int64_t>(last));
    } else {
      const __m128i rest = _mm_cvtsi64_si128(static_cast<int64_t>(last));
      return _mm512_mask_expand_epi8(low, Low(groups) << kept, _mm512_castsi128_si512(rest));
    }
  } else if constexpr (kFull) {
    return Bytes(from);
  } else {
    return _mm512_maskz_loadu_epi8(Low(lanes), from);
  }
}

// A table of 16 (in each 128 bits) or 32 bytes.
template <bool kFolded>
CAIRN_INLINE __m512i LoadTable(const uint8_t* from) {
  if constexpr (kFolded) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  } else {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
}
template <bool kFolded>
CAIRN_INLINE __m512i LookUp(__m512i table, __m512i index) {
  if constexpr (kFolded) return _mm512_permutexvar_epi8(index, table);
  return _mm512_shuffle_epi8(table, index);
}

// Words of the even lanes and of the odd ones, as bytes in the order of the lanes.
CAIRN_INLINE __m512i LowBytes(__m512i even, __m512i odd) {
  return _mm512_mask_mov_epi8(even, kOddBytes, _mm512_slli_epi16(odd, 8));
}
CAIRN_INLINE __m512i HighBytes(__m512i even, __m512i odd) {
  return _mm512_mask_mov_epi8(_mm512_srli_epi16(even, 8), kOddBytes, odd);
}
CAIRN_INLINE __m512i Even(__m512i bytes) {
  return _mm512_and_si512(bytes, _mm512_set1_epi16(0xff));
}
CAIRN_INLINE __m512i Odd(__m512i bytes) { return _mm512_srli_epi16(bytes, 8); }

// The states of 64 coders.
struct Coders {
  __m512i low, high;

  explicit Coders(const CoderSet& set) : low(Bytes(set.low.data())), high(Bytes(set.high.data())) {}
  void Save(CoderSet* set) const {
    _mm512_storeu_si512(set->low.data(), low);
    _mm512_storeu_si512(set->high.data(), high);
  }
  template <bool kFull>
  CAIRN_INLINE void Set(uint64_t active, __m512i new_low, __m512i new_high) {
    low = kFull ? new_low : _mm512_mask_mov_epi8(low, active, new_low);
    high = kFull ? new_high : _mm512_mask_mov_epi8(high, active, new_high);
  }
};

template <bool kFp16, bool kFolded>
struct Encoder {
  __m512i frequency, first, inverse, coded_as, reference;
  uint8_t *stream, *escapes;

  Encoder(const StripeModel& model, const EncodeState& state) {
    alignas(64) std::array<uint8_t, kMaxSymbols> firsts;
    alignas(64) std::array<uint16_t, kMaxSymbols> inverses;
    alignas(64) std::array<uint8_t, kMaxSymbols> coded{};
    uint32_t slot = 0;
    for (uint32_t s = 0; s < kMaxSymbols; ++s) {
      const uint32_t f = model.frequency[s];
      firsts[s] = static_cast<uint8_t>(slot);
      slot += f;
      inverses[s] = static_cast<uint16_t>(f > 1 ? 65536 / f : 65535);
      if (s < kDistances) coded[s] = f > 0 ? static_cast<uint8_t>(s) : kEscape;
    }
    frequency = LoadTable<kFolded>(model.frequency.data());
    first = LoadTable<kFolded>(firsts.data());
    inverse = Bytes(inverses.data());
    coded_as = LoadTable<false>(coded.data());
    reference = Bytes(model.reference.data());
    stream = state.stream;
    escapes = state.escapes;
  }

  void Save(EncodeState* state) const {
    state->stream = stream;
    state->escapes = escapes;
  }

  // x / f for words x < 256 f: the estimate is right or one too small.
  static CAIRN_INLINE void Divide(__m512i x, __m512i f, __m512i inverse_f, __m512i* quotient,
                                  __m512i* remainder) {
    const __m512i q = _mm512_mulhi_epu16(x, inverse_f);
    const __m512i r = _mm512_sub_epi16(x, _mm512_mullo_epi16(q, f));
    const __mmask32 again = _mm512_cmpge_epu16_mask(r, f);
    *quotient = _mm512_mask_sub_epi16(q, again, q, _mm512_set1_epi16(-1));
    *remainder = _mm512_mask_sub_epi16(r, again, r, f);
  }

  template <bool kFull>
  CAIRN_INLINE void Line(Coders& coders, const uint8_t* at, const uint8_t* before, uint32_t lanes,
                         bool carried, uint8_t* raw_to) {
    const uint64_t active = kFull ? ~uint64_t{0} : Low(lanes);
    const LowHigh line = LoadLine<kFull>(at, lanes);
    __m512i raw_low = line.low;
    if constexpr (!kFp16) {
      raw_low = _mm512_and_si512(raw_low, _mm512_set1_epi8(0x7f));
      if constexpr (!kFolded) {
        raw_low = _mm512_or_si512(
            raw_low, _mm512_and_si512(line.high, _mm512_set1_epi8(static_cast<char>(0x80))));
      }
    }
    StoreRaw<kFp16, kFolded, kFull>(raw_low, line.high, lanes, carried, raw_to);

    const __m512i exponents = Exponents<kFp16>(line);
    __m512i symbols = _mm512_shuffle_epi8(coded_as, Distances(reference, exponents));
    const uint64_t escaped =
        _mm512_mask_cmpeq_epi8_mask(active, symbols, _mm512_set1_epi8(kEscape));
    if (escaped != 0) {
      _mm512_storeu_si512(escapes, _mm512_maskz_compress_epi8(escaped, exponents));
      escapes += _mm_popcnt_u64(escaped);
    }
    if constexpr (kFolded) {
      __m512i flips = line.high;
      if (before != nullptr) flips = _mm512_xor_si512(flips, LoadLine<kFull>(before, lanes).high);
      symbols = _mm512_mask_add_epi8(symbols, _mm512_movepi8_mask(flips), symbols,
                                     _mm512_set1_epi8(kDistances));
    }

    const __m512i f = LookUp<kFolded>(frequency, symbols);
    const uint64_t full = _mm512_mask_cmpge_epu8_mask(active, coders.high, f);
    const auto emitted = static_cast<uint32_t>(_mm_popcnt_u64(full));
    stream -= emitted;
    _mm512_mask_storeu_epi8(stream, Low(emitted), _mm512_maskz_compress_epi8(full, coders.low));
    const __m512i x_low = _mm512_mask_mov_epi8(coders.low, full, coders.high);
    const __m512i x_high = _mm512_maskz_mov_epi8(~full, coders.high);

    __m512i even_quotient, even_rest, odd_quotient, odd_rest;
    Divide(LowBytes(x_low, x_high), Even(f), _mm512_permutexvar_epi16(symbols, inverse),
           &even_quotient, &even_rest);
    Divide(HighBytes(x_low, x_high), Odd(f), _mm512_permutexvar_epi16(Odd(symbols), inverse),
           &odd_quotient, &odd_rest);
    const __m512i new_low =
        _mm512_add_epi8(LowBytes(even_rest, odd_rest), LookUp<kFolded>(first, symbols));
    const __m512i new_high = LowBytes(even_quotient, odd_quotient);
    coders.Set<kFull>(active, new_low, new_high);
  }
};

template <bool kFp16, bool kFolded>
bool EncodeStripe(const uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                  uint8_t* raw_plane, EncodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  Encoder<kFp16, kFolded> encoder(model, *state);
  Coders even(state->sets[0]), odd(state->sets[1]);
  const size_t stride = stripe.line_stride;
  const uint32_t plain = stripe.PlainLines() & ~1u;
  for (uint32_t line = stripe.lines; line-- > plain;) {
    if (encoder.stream - encoder.escapes < kEncodeSlack) return false;
    const uint8_t* at = elements + line * stride;
    const uint8_t* before = line > 0 ? at - stride : nullptr;
    encoder.template Line<false>(line % 2 == 0 ? even : odd, at, before, stripe.LanesOf(line),
                                 stripe.Carried(line), raw_plane + stripe.RawOffset(kind, line));
  }
  const size_t raw_bytes = RawLineBytes(kind, kLanes, false);
  for (uint32_t line = plain; line > 0; line -= 2) {
    if (encoder.stream - encoder.escapes < kEncodeSlack) return false;
    const uint8_t* at = elements + line * stride;
    uint8_t* raw = raw_plane + line * raw_bytes;
    encoder.template Line<true>(odd, at - stride, at - 2 * stride, kLanes, false, raw - raw_bytes);
    encoder.template Line<true>(even, at - 2 * stride, line > 2 ? at - 3 * stride : nullptr, kLanes,
                                false, raw - 2 * raw_bytes);
  }
  encoder.Save(state);
  even.Save(&state->sets[0]);
  odd.Save(&state->sets[1]);
  return true;
}

template <bool kFp16, bool kFolded>
struct Decoder {
  __m512i slots0, slots1, slots2, slots3, frequency, first, reference;
  __m512i signs;
  const uint8_t *stream, *stream_end, *escapes, *escapes_begin;

  Decoder(const StripeModel& model, const DecodeState& state) {
    alignas(64) std::array<uint8_t, kSlots> symbols;
    alignas(64) std::array<uint8_t, kMaxSymbols> firsts;
    for (uint32_t s = 0, slot = 0; s < kMaxSymbols; ++s) {
      firsts[s] = static_cast<uint8_t>(slot);
      std::memset(symbols.data() + slot, static_cast<int>(s), model.frequency[s]);
      slot += model.frequency[s];
    }
    slots0 = Bytes(symbols.data());
    slots1 = Bytes(symbols.data() + 64);
    slots2 = Bytes(symbols.data() + 128);
    slots3 = Bytes(symbols.data() + 192);
    frequency = LoadTable<kFolded>(model.frequency.data());
    first = LoadTable<kFolded>(firsts.data());
    reference = Bytes(model.reference.data());
    signs = _mm512_setzero_si512();
    stream = state.stream;
    stream_end = state.stream_end;
    escapes = state.escapes;
    escapes_begin = state.escapes_begin;
  }

  void Save(DecodeState* state) const {
    state->stream = stream;
    state->escapes = escapes;
  }

  template <bool kFull>
  CAIRN_INLINE DecodeFault Line(Coders& coders, const uint8_t* raw, uint32_t lanes, bool carried,
                                uint8_t* to) {
    const uint64_t active = kFull ? ~uint64_t{0} : Low(lanes);
    const __m512i low = coders.low;
    const __m512i symbols = _mm512_mask_blend_epi8(_mm512_movepi8_mask(low),
                                                   _mm512_permutex2var_epi8(slots0, low, slots1),
                                                   _mm512_permutex2var_epi8(slots2, low, slots3));
    const __m512i f = LookUp<kFolded>(frequency, symbols);
    const __m512i offset = _mm512_sub_epi8(low, LookUp<kFolded>(first, symbols));
    const __m512i even =
        _mm512_add_epi16(_mm512_mullo_epi16(Even(f), Even(coders.high)), Even(offset));
    const __m512i odd = _mm512_add_epi16(_mm512_mullo_epi16(Odd(f), Odd(coders.high)), Odd(offset));
    const __m512i x_low = LowBytes(even, odd);
    const __m512i x_high = HighBytes(even, odd);
    const uint64_t refill = _mm512_mask_testn_epi8_mask(active, x_high, x_high);
    const ptrdiff_t left = stream_end - stream;
    const __m512i next = __builtin_expect(left >= 64, 1)
                             ? Bytes(stream)
                             : _mm512_maskz_loadu_epi8(Low(static_cast<size_t>(left)), stream);
    const auto taken = static_cast<ptrdiff_t>(_mm_popcnt_u64(refill));
    if (taken > left) return DecodeFault::kStreamEnds;
    stream += taken;
    const __m512i new_low = _mm512_mask_expand_epi8(x_low, refill, next);
    const __m512i new_high = _mm512_mask_mov_epi8(x_high, refill, x_low);
    coders.Set<kFull>(active, new_low, new_high);

    const __m512i distances =
        kFolded ? _mm512_and_si512(symbols, _mm512_set1_epi8(kDistances - 1)) : symbols;
    __m512i exponents = _mm512_sub_epi8(reference, distances);
    const uint64_t escaped =
        _mm512_mask_cmpeq_epi8_mask(active, distances, _mm512_set1_epi8(kEscape));
    if (__builtin_expect(escaped != 0, 0)) {
      const auto count = static_cast<ptrdiff_t>(_mm_popcnt_u64(escaped));
      if (count > escapes - escapes_begin) return DecodeFault::kEscapesEnd;
      escapes -= count;
      const __m512i list = _mm512_maskz_loadu_epi8(Low(static_cast<size_t>(count)), escapes);
      exponents = _mm512_mask_expand_epi8(exponents, escaped, list);
    }
    if constexpr (kFolded) {
      // Bit 4 of a symbol, brought to bit 7.
      const __m512i flips =
          _mm512_slli_epi16(_mm512_and_si512(symbols, _mm512_set1_epi8(kDistances)), 3);
      signs = _mm512_xor_si512(signs, flips);
    }
    const __m512i raw_low = carried ? coders.low : LoadLow<kFp16, kFolded, kFull>(raw, lanes);
    StoreLine<kFull>(Compose<kFull>(exponents, raw_low, raw, lanes, carried), to, lanes);
    return DecodeFault::kNone;
  }

  template <bool kFull>
  CAIRN_INLINE LowHigh Compose(__m512i exponents, __m512i raw_low, const uint8_t* raw,
                               uint32_t lanes, bool carried) const {
    const __m512i top = _mm512_set1_epi8(static_cast<char>(0x80));
    if constexpr (kFp16) {
      const size_t groups = kFull ? 8 : (lanes + 7) / 8;
      if (!carried) raw += lanes;
      std::array<uint64_t, 3> planes{};
      for (size_t p = 0; p < BitPlanes({kFp16, kFolded}); ++p) {
        std::memcpy(&planes[p], raw + p * groups, groups);
      }
      __m512i upper = _mm512_and_si512(_mm512_slli_epi16(exponents, 2), _mm512_set1_epi8(0x7c));
      upper = _mm512_mask_add_epi8(upper, planes[0], upper, _mm512_set1_epi8(1));
      upper = _mm512_mask_add_epi8(upper, planes[1], upper, _mm512_set1_epi8(2));
      const __m512i sign = kFolded ? signs : _mm512_maskz_mov_epi8(planes[2], top);
      return {raw_low, _mm512_or_si512(upper, sign)};
    } else {
      const __m512i last = _mm512_slli_epi16(exponents, 7);  // Its top bit is the exponent's last.
      const __m512i upper =
          _mm512_and_si512(_mm512_srli_epi16(exponents, 1), _mm512_set1_epi8(0x7f));
      // a ? b : c, bit by bit.
      constexpr int kSelect = 0xca;
      const __m512i sign = kFolded ? signs : raw_low;
      return {_mm512_ternarylogic_epi32(top, last, raw_low, kSelect),
              _mm512_ternarylogic_epi32(top, sign, upper, kSelect)};
    }
  }
};

template <bool kFp16, bool kFolded>
DecodeFault DecodeStripe(uint8_t* elements, const Stripe& stripe, const StripeModel& model,
                         const uint8_t* raw_plane, DecodeState* state) {
  constexpr Kv64Kind kind{kFp16, kFolded};
  Decoder<kFp16, kFolded> decoder(model, *state);
  Coders even(state->sets[0]), odd(state->sets[1]);
  const size_t stride = stripe.line_stride;
  const uint32_t plain = stripe.PlainLines() & ~1u;
  const size_t raw_bytes = RawLineBytes(kind, kLanes, false);
  for (uint32_t line = 0; line < plain; line += 2) {
    const uint8_t* raw = raw_plane + line * raw_bytes;
    uint8_t* to = elements + line * stride;
    DecodeFault fault = decoder.template Line<true>(even, raw, kLanes, false, to);
    if (fault != DecodeFault::kNone) return fault;
    fault = decoder.template Line<true>(odd, raw + raw_bytes, kLanes, false, to + stride);
    if (fault != DecodeFault::kNone) return fault;
  }
  for (uint32_t line = plain; line < stripe.lines; ++line) {
    const DecodeFault fault = decoder.template Line<false>(
        line % 2 == 0 ? even : odd, raw_plane + stripe.RawOffset(kind, line), stripe.LanesOf(line),
        stripe.Carried(line), elements + line * stride);
    if (fault != DecodeFault::kNone) return fault;
  }
  decoder.Save(state);
  even.Save(&state->sets[0]);
  odd.Save(&state->sets[1]);
  return DecodeFault::kNone;
}

void SumExponents(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                  const Sampling& sampling, uint16_t* sums) {
  (kind.fp16 ? SumLines<true> : SumLines<false>)(elements, stripe, sampling, sums);
}

void CountSymbols(Kv64Kind kind, const uint8_t* elements, const Stripe& stripe,
                  const Sampling& sampling, const uint8_t* reference, uint32_t* counts) {
  ForKind(kind, [&]<bool kFp16, bool kFolded>() {
    CountLines<kFp16, kFolded>(elements, stripe, sampling, reference, counts);
  });
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

constinit const Kv64Loops kAvx512Loops{SumExponents, CountSymbols, Encode, Decode};

}  // namespace cairn::internal
#endif
