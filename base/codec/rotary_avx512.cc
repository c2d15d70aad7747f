// SPDX-License-Identifier: Apache-2.0
//
// 16 pairs at once. A 16-bit pair of neighbours is one 32-bit lane: its lower half is the pair's x,
// if pairs are adjacent, and else an element of even number, whose turn the table therefore has
// before those of odd number. Each bf16 comes apart by a shift or a mask, and goes back by a blend.
//
// Processors convert fp32 to bf16 by an instruction of their own, which takes subnormal numbers for
// zero: rounding is done by integers here.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own header initialises its "undefined" vectors with themselves and then warns about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "base/codec/rotary_loops.h"

namespace cairn::internal {
namespace {

constexpr uint32_t kLanes = kRotaryLanesAvx512;
constexpr __mmask32 kUpperHalves = 0xAAAAAAAA;

__mmask16 MaskOf(uint32_t lanes) {
  return static_cast<__mmask16>(lanes >= kLanes ? 0xFFFF : (1u << lanes) - 1);
}
__mmask32 WideMaskOf(uint32_t lanes) {
  return lanes >= 2 * kLanes ? ~__mmask32{0} : (__mmask32{1} << lanes) - 1;
}

struct Pairs {
  __m512 x, y;
};
Pairs WithOneNan(Pairs pairs) {
  if (_mm512_cmp_ps_mask(pairs.x, pairs.y, _CMP_UNORD_Q) == 0) [[likely]]
    return pairs;
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(kRotaryNan));
  return {_mm512_mask_mov_ps(pairs.x, _mm512_cmp_ps_mask(pairs.x, pairs.x, _CMP_UNORD_Q), nan),
          _mm512_mask_mov_ps(pairs.y, _mm512_cmp_ps_mask(pairs.y, pairs.y, _CMP_UNORD_Q), nan)};
}

struct Turns {
  explicit Turns(const float* cosines, const float* sines)
      : cos(_mm512_load_ps(cosines)), sin(_mm512_load_ps(sines)) {}
  __mmask16 Stay() const {
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(cos, _mm512_set1_ps(1.0F), _CMP_EQ_OQ), sin,
                                   _mm512_setzero_ps(), _CMP_EQ_OQ);
  }
  Pairs Of(__m512 x, __m512 y) const {
    return WithOneNan({_mm512_sub_ps(_mm512_mul_ps(x, cos), _mm512_mul_ps(y, sin)),
                       _mm512_add_ps(_mm512_mul_ps(y, cos), _mm512_mul_ps(x, sin))});
  }
  __m512 cos, sin;
};

// Loads and stores of 32-bit and 16-bit lanes: whole vectors, or those of a mask, since a store
// with a mask takes several times as long.
template <bool kWhole>
__m512i LoadWords(const std::byte* from, __mmask16 mask) {
  return kWhole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi32(mask, from);
}
template <bool kWhole>
void StoreWords(std::byte* into, __mmask16 mask, __m512i words) {
  if (kWhole) return _mm512_storeu_si512(into, words);
  _mm512_mask_storeu_epi32(into, mask, words);
}
template <bool kWhole>
__m512i LoadHalves(const std::byte* from, __mmask32 mask) {
  return kWhole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(mask, from);
}
template <bool kWhole>
void StoreHalves(std::byte* into, __mmask32 mask, __m512i halves) {
  if (kWhole) return _mm512_storeu_si512(into, halves);
  _mm512_mask_storeu_epi16(into, mask, halves);
}

template <bool kWhole>
__m256i LoadF16(const std::byte* from, __mmask16 mask) {
  return kWhole ? _mm256_loadu_epi16(from) : _mm256_maskz_loadu_epi16(mask, from);
}
template <bool kWhole>
void StoreF16(std::byte* into, __mmask16 mask, __m256i halves) {
  if (kWhole) return _mm256_storeu_epi16(into, halves);
  _mm256_mask_storeu_epi16(into, mask, halves);
}

__m512 Lower(__m512i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(bf16, 16)); }
__m512 Upper(__m512i bf16) {
  return _mm512_castsi512_ps(_mm512_and_si512(bf16, _mm512_set1_epi32(-0x10000)));
}
// Rounds to bf16, in the upper half of the lane; the lower one holds anything.
__m512i Rounded(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i half =
      _mm512_mask_mov_epi32(_mm512_set1_epi32(0x7FFF), odd, _mm512_set1_epi32(0x8000));
  return _mm512_add_epi32(bits, half);
}
__m512i Joined(__m512i lower, __m512i upper) {
  return _mm512_mask_mov_epi16(lower, kUpperHalves, upper);
}

// A row of each kind: kPairs pairs are turned at a time by kTurns cosines, `left` of them where
// that is fewer.
struct Bf16Halves {
  static constexpr uint32_t kPairs = 2 * kLanes, kTurns = kPairs;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart, uint32_t left) {
    const __mmask32 mask = WideMaskOf(left);
    const __m512i x = LoadHalves<kWhole>(from, mask);
    const __m512i y = LoadHalves<kWhole>(from + 2 * apart, mask);
    const Turns even(cos, sin), odd(cos + kLanes, sin + kLanes);
    const Pairs lower = even.Of(Lower(x), Lower(y)), upper = odd.Of(Upper(x), Upper(y));
    __m512i lower_x = _mm512_srli_epi32(Rounded(lower.x), 16), upper_x = Rounded(upper.x);
    __m512i lower_y = _mm512_srli_epi32(Rounded(lower.y), 16), upper_y = Rounded(upper.y);
    if (kSomeStay) {
      lower_x = _mm512_mask_mov_epi32(lower_x, even.Stay(), x);
      lower_y = _mm512_mask_mov_epi32(lower_y, even.Stay(), y);
      upper_x = _mm512_mask_mov_epi32(upper_x, odd.Stay(), x);
      upper_y = _mm512_mask_mov_epi32(upper_y, odd.Stay(), y);
    }
    StoreHalves<kWhole>(into, mask, Joined(lower_x, upper_x));
    StoreHalves<kWhole>(into + 2 * apart, mask, Joined(lower_y, upper_y));
  }
};

struct Bf16Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/, uint32_t left) {
    const __mmask16 mask = MaskOf(left);
    const __m512i words = LoadWords<kWhole>(from, mask);
    const Turns turns(cos, sin);
    const Pairs to = turns.Of(Lower(words), Upper(words));
    __m512i turned = Joined(_mm512_srli_epi32(Rounded(to.x), 16), Rounded(to.y));
    if (kSomeStay) turned = _mm512_mask_mov_epi32(turned, turns.Stay(), words);
    StoreWords<kWhole>(into, mask, turned);
  }
};

__m256i F16Of(__m512 value) {
  return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

struct F16Halves {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart, uint32_t left) {
    const __mmask16 mask = MaskOf(left);
    const __m256i x = LoadF16<kWhole>(from, mask), y = LoadF16<kWhole>(from + 2 * apart, mask);
    const Turns turns(cos, sin);
    const Pairs to = turns.Of(_mm512_cvtph_ps(x), _mm512_cvtph_ps(y));
    __m256i turned_x = F16Of(to.x), turned_y = F16Of(to.y);
    if (kSomeStay) {
      turned_x = _mm256_mask_mov_epi16(turned_x, turns.Stay(), x);
      turned_y = _mm256_mask_mov_epi16(turned_y, turns.Stay(), y);
    }
    StoreF16<kWhole>(into, mask, turned_x);
    StoreF16<kWhole>(into + 2 * apart, mask, turned_y);
  }
};

// x * cos + y * -sin and y * cos + x * sin: of all elements at once, beside their neighbours.
struct F16Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = 2 * kLanes;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/, uint32_t left) {
    const __mmask32 mask = WideMaskOf(2 * left);
    const auto mask_a = static_cast<__mmask16>(mask), mask_b = static_cast<__mmask16>(mask >> 16);
    const __m256i a = LoadF16<kWhole>(from, mask_a), b = LoadF16<kWhole>(from + 32, mask_b);
    const Turns turns_a(cos, sin), turns_b(cos + kLanes, sin + kLanes);
    const auto turned = [](const Turns& turns, __m256i halves) {
      const __m512 value = _mm512_cvtph_ps(halves);
      return _mm512_add_ps(_mm512_mul_ps(value, turns.cos),
                           _mm512_mul_ps(_mm512_permute_ps(value, 0xB1), turns.sin));
    };
    const Pairs to = WithOneNan({turned(turns_a, a), turned(turns_b, b)});
    __m256i to_a = F16Of(to.x), to_b = F16Of(to.y);
    if (kSomeStay) {
      to_a = _mm256_mask_mov_epi16(to_a, turns_a.Stay(), a);
      to_b = _mm256_mask_mov_epi16(to_b, turns_b.Stay(), b);
    }
    StoreF16<kWhole>(into, mask_a, to_a);
    StoreF16<kWhole>(into + 32, mask_b, to_b);
  }
};

struct F32Halves {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart, uint32_t left) {
    const __mmask16 mask = MaskOf(left);
    const __m512 x = _mm512_castsi512_ps(LoadWords<kWhole>(from, mask));
    const __m512 y = _mm512_castsi512_ps(LoadWords<kWhole>(from + 4 * apart, mask));
    const Turns turns(cos, sin);
    Pairs to = turns.Of(x, y);
    if (kSomeStay) {
      to.x = _mm512_mask_mov_ps(to.x, turns.Stay(), x);
      to.y = _mm512_mask_mov_ps(to.y, turns.Stay(), y);
    }
    StoreWords<kWhole>(into, mask, _mm512_castps_si512(to.x));
    StoreWords<kWhole>(into + 4 * apart, mask, _mm512_castps_si512(to.y));
  }
};

struct F32Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kWhole, bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/, uint32_t left) {
    const __mmask32 mask = WideMaskOf(2 * left);
    const auto mask_a = static_cast<__mmask16>(mask), mask_b = static_cast<__mmask16>(mask >> 16);
    const __m512 a = _mm512_castsi512_ps(LoadWords<kWhole>(from, mask_a));
    const __m512 b = _mm512_castsi512_ps(LoadWords<kWhole>(from + 64, mask_b));
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i to_a = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i to_b = _mm512_add_epi32(to_a, _mm512_set1_epi32(8));
    const __m512 x = _mm512_permutex2var_ps(a, even, b), y = _mm512_permutex2var_ps(a, odd, b);
    const Turns turns(cos, sin);
    Pairs to = turns.Of(x, y);
    if (kSomeStay) {
      to.x = _mm512_mask_mov_ps(to.x, turns.Stay(), x);
      to.y = _mm512_mask_mov_ps(to.y, turns.Stay(), y);
    }
    StoreWords<kWhole>(into, mask_a, _mm512_castps_si512(_mm512_permutex2var_ps(to.x, to_a, to.y)));
    StoreWords<kWhole>(into + 64, mask_b,
                       _mm512_castps_si512(_mm512_permutex2var_ps(to.x, to_b, to.y)));
  }
};

template <typename Kind, bool kSomeStay>
void TurnRow(const RotaryJob& job, const float* cos, const float* sin, const std::byte* from,
             std::byte* into) {
  const size_t apart = job.pairs;
  // Bytes from one lot of pairs to the next, in a row.
  const size_t step =
      Kind::kPairs * static_cast<size_t>(job.from.element_stride) * (job.adjacent ? 2 : 1);
  uint32_t left = job.pairs;
  for (; left >= Kind::kPairs; left -= Kind::kPairs) {
    Kind::template Turn<true, kSomeStay>(cos, sin, from, into, apart, left);
    cos += Kind::kTurns;
    sin += Kind::kTurns;
    from += step;
    into += step;
  }
  if (left != 0) Kind::template Turn<false, kSomeStay>(cos, sin, from, into, apart, left);
}

template <typename Kind>
void TurnAll(const RotaryJob& job) {
  EachRow(job, [&](const float* cos, const float* sin, bool some_stay, const std::byte* from,
                   std::byte* into) {
    if (some_stay) return TurnRow<Kind, true>(job, cos, sin, from, into);
    TurnRow<Kind, false>(job, cos, sin, from, into);
  });
}

}  // namespace

void TurnRowsAvx512(const RotaryJob& job) {
  if (job.dtype == Dtype::kF32) {
    return job.adjacent ? TurnAll<F32Adjacent>(job) : TurnAll<F32Halves>(job);
  }
  if (job.dtype == Dtype::kF16) {
    return job.adjacent ? TurnAll<F16Adjacent>(job) : TurnAll<F16Halves>(job);
  }
  job.adjacent ? TurnAll<Bf16Adjacent>(job) : TurnAll<Bf16Halves>(job);
}

}  // namespace cairn::internal
#endif
