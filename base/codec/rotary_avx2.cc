// SPDX-License-Identifier: Apache-2.0
//
// Eight pairs at once; base/codec/rotary_avx512.cc says how 16-bit elements are taken apart. What
// does not fill a vector is turned pair by pair.
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/codec/rotary_loops.h"

namespace cairn::internal {
namespace {

constexpr uint32_t kLanes = kRotaryLanesAvx2;

__m256i Load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
void Store(std::byte* into, __m256i vector) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(into), vector);
}
__m128i LoadHalf(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
void StoreHalf(std::byte* into, __m128i vector) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(into), vector);
}

__m256 OrNan(__m256 value) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(kRotaryNan));
  return _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
}

struct Pairs {
  __m256 x, y;
};
Pairs WithOneNan(Pairs pairs) {
  if (_mm256_movemask_ps(_mm256_cmp_ps(pairs.x, pairs.y, _CMP_UNORD_Q)) == 0) [[likely]] {
    return pairs;
  }
  return {OrNan(pairs.x), OrNan(pairs.y)};
}

struct Turns {
  explicit Turns(const float* cosines, const float* sines)
      : cos(_mm256_load_ps(cosines)), sin(_mm256_load_ps(sines)) {}
  // All bits of the lanes whose pairs do not turn.
  __m256 Stay() const {
    return _mm256_and_ps(_mm256_cmp_ps(cos, _mm256_set1_ps(1.0F), _CMP_EQ_OQ),
                         _mm256_cmp_ps(sin, _mm256_setzero_ps(), _CMP_EQ_OQ));
  }
  Pairs Of(__m256 x, __m256 y) const {
    return WithOneNan({_mm256_sub_ps(_mm256_mul_ps(x, cos), _mm256_mul_ps(y, sin)),
                       _mm256_add_ps(_mm256_mul_ps(y, cos), _mm256_mul_ps(x, sin))});
  }
  // Stay, of 16-bit lanes.
  __m128i StayHalves() const {
    const __m256i wide = _mm256_castps_si256(Stay());
    return _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  }
  __m256 cos, sin;
};

__m256i Chosen(__m256i turned, __m256 stay, __m256i before) {
  return _mm256_blendv_epi8(turned, before, _mm256_castps_si256(stay));
}

__m256 Lower(__m256i bf16) { return _mm256_castsi256_ps(_mm256_slli_epi32(bf16, 16)); }
__m256 Upper(__m256i bf16) {
  return _mm256_castsi256_ps(_mm256_and_si256(bf16, _mm256_set1_epi32(-0x10000)));
}
// Rounds to bf16, in the upper half of the lane; the lower one holds anything.
__m256i Rounded(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
}
__m256i Joined(__m256i lower, __m256i upper) { return _mm256_blend_epi16(lower, upper, 0xAA); }

struct Bf16Halves {
  static constexpr uint32_t kPairs = 2 * kLanes, kTurns = kPairs;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart) {
    const __m256i x = Load(from), y = Load(from + 2 * apart);
    const Turns even(cos, sin), odd(cos + kLanes, sin + kLanes);
    const Pairs lower = even.Of(Lower(x), Lower(y)), upper = odd.Of(Upper(x), Upper(y));
    __m256i lower_x = _mm256_srli_epi32(Rounded(lower.x), 16), upper_x = Rounded(upper.x);
    __m256i lower_y = _mm256_srli_epi32(Rounded(lower.y), 16), upper_y = Rounded(upper.y);
    if (kSomeStay) {
      lower_x = Chosen(lower_x, even.Stay(), x);
      lower_y = Chosen(lower_y, even.Stay(), y);
      upper_x = Chosen(upper_x, odd.Stay(), x);
      upper_y = Chosen(upper_y, odd.Stay(), y);
    }
    Store(into, Joined(lower_x, upper_x));
    Store(into + 2 * apart, Joined(lower_y, upper_y));
  }
};

struct Bf16Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/) {
    const __m256i words = Load(from);
    const Turns turns(cos, sin);
    const Pairs to = turns.Of(Lower(words), Upper(words));
    __m256i turned = Joined(_mm256_srli_epi32(Rounded(to.x), 16), Rounded(to.y));
    if (kSomeStay) turned = Chosen(turned, turns.Stay(), words);
    Store(into, turned);
  }
};

__m128i F16Of(__m256 value) { return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); }

struct F16Halves {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart) {
    const __m128i x = LoadHalf(from), y = LoadHalf(from + 2 * apart);
    const Turns turns(cos, sin);
    const Pairs to = turns.Of(_mm256_cvtph_ps(x), _mm256_cvtph_ps(y));
    __m128i turned_x = F16Of(to.x), turned_y = F16Of(to.y);
    if (kSomeStay) {
      const __m128i stay = turns.StayHalves();
      turned_x = _mm_blendv_epi8(turned_x, x, stay);
      turned_y = _mm_blendv_epi8(turned_y, y, stay);
    }
    StoreHalf(into, turned_x);
    StoreHalf(into + 2 * apart, turned_y);
  }
};

// x * cos + y * -sin and y * cos + x * sin: of all elements at once, beside their neighbours.
struct F16Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = 2 * kLanes;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/) {
    const __m128i a = LoadHalf(from), b = LoadHalf(from + 16);
    const Turns turns_a(cos, sin), turns_b(cos + kLanes, sin + kLanes);
    const auto turned = [](const Turns& turns, __m128i halves) {
      const __m256 value = _mm256_cvtph_ps(halves);
      return _mm256_add_ps(_mm256_mul_ps(value, turns.cos),
                           _mm256_mul_ps(_mm256_permute_ps(value, 0xB1), turns.sin));
    };
    const Pairs to = WithOneNan({turned(turns_a, a), turned(turns_b, b)});
    __m128i to_a = F16Of(to.x), to_b = F16Of(to.y);
    if (kSomeStay) {
      to_a = _mm_blendv_epi8(to_a, a, turns_a.StayHalves());
      to_b = _mm_blendv_epi8(to_b, b, turns_b.StayHalves());
    }
    StoreHalf(into, to_a);
    StoreHalf(into + 16, to_b);
  }
};

struct F32Halves {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t apart) {
    const __m256i x = Load(from), y = Load(from + 4 * apart);
    const Turns turns(cos, sin);
    const Pairs to = turns.Of(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y));
    __m256i turned_x = _mm256_castps_si256(to.x), turned_y = _mm256_castps_si256(to.y);
    if (kSomeStay) {
      turned_x = Chosen(turned_x, turns.Stay(), x);
      turned_y = Chosen(turned_y, turns.Stay(), y);
    }
    Store(into, turned_x);
    Store(into + 4 * apart, turned_y);
  }
};

struct F32Adjacent {
  static constexpr uint32_t kPairs = kLanes, kTurns = kPairs;
  template <bool kSomeStay>
  static void Turn(const float* cos, const float* sin, const std::byte* from, std::byte* into,
                   size_t /*apart*/) {
    const __m256i a = Load(from), b = Load(from + 32);
    Turns turns(cos, sin);
    // Shuffles stay within 128 bits: they give the pairs 0, 1, 4, 5, 2, 3, 6, 7.
    const auto shuffled = [](__m256 four_and_four) {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(four_and_four), 0xD8));
    };
    turns.cos = shuffled(turns.cos);
    turns.sin = shuffled(turns.sin);
    const __m256 as = _mm256_castsi256_ps(a), bs = _mm256_castsi256_ps(b);
    const __m256 x = _mm256_shuffle_ps(as, bs, 0x88), y = _mm256_shuffle_ps(as, bs, 0xDD);
    Pairs to = turns.Of(x, y);
    if (kSomeStay) {
      to = {_mm256_blendv_ps(to.x, x, turns.Stay()), _mm256_blendv_ps(to.y, y, turns.Stay())};
    }
    Store(into, _mm256_castps_si256(_mm256_unpacklo_ps(to.x, to.y)));
    Store(into + 32, _mm256_castps_si256(_mm256_unpackhi_ps(to.x, to.y)));
  }
};

template <typename Kind, bool kSomeStay>
void TurnRow(const RotaryJob& job, const float* cos, const float* sin, const std::byte* from,
             std::byte* into) {
  const size_t step =
      static_cast<size_t>(job.from.element_stride) * (job.adjacent ? 2 : 1);  // From pair to pair.
  uint32_t done = 0;
  for (; done + Kind::kPairs <= job.pairs; done += Kind::kPairs) {
    const size_t turns = size_t{done} * Kind::kTurns / Kind::kPairs;
    Kind::template Turn<kSomeStay>(cos + turns, sin + turns, from + done * step, into + done * step,
                                   job.pairs);
  }
  if (done != job.pairs) TurnPairs(job, cos, sin, from, into, done);
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

void TurnRowsAvx2(const RotaryJob& job) {
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
