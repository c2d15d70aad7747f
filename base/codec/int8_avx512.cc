// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// gcc's own header initialises its "undefined" vectors with themselves and then warns about it.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "base/codec/int8.h"

namespace cairn::internal {
namespace {

constexpr size_t kLanes = 32;

__mmask32 MaskOf(size_t lanes) {
  return lanes >= kLanes ? ~__mmask32{0} : (__mmask32{1} << lanes) - 1;
}

__m512i Word(int value) { return _mm512_set1_epi16(static_cast<int16_t>(value)); }

void Largest(const uint8_t* elements, size_t count, uint16_t* largest) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __mmask32 mask = MaskOf(count - i);
    const __m512i bits =
        _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, elements + 2 * i), Word(0x7fff));
    const __m512i before = _mm512_maskz_loadu_epi16(mask, largest + i);
    _mm512_mask_storeu_epi16(largest + i, mask, _mm512_max_epu16(before, bits));
  }
}

template <int kMantissaBits>
void QuantiseRun(const uint8_t* elements, const uint8_t* scales, size_t count, int8_t* codes) {
  const __m512i one = Word(1);
  for (size_t i = 0; i < count; i += kLanes) {
    const __mmask32 mask = MaskOf(count - i);
    const __m512i bits = _mm512_maskz_loadu_epi16(mask, elements + 2 * i);
    const __m512i scale = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, scales + i));
    const __m512i exponent = _mm512_srli_epi16(_mm512_and_si512(bits, Word(0x7fff)), kMantissaBits);
    const __mmask32 normal = _mm512_test_epi16_mask(exponent, exponent);
    __m512i units = _mm512_and_si512(bits, Word((1 << kMantissaBits) - 1));
    units = _mm512_mask_add_epi16(units, normal, units, Word(1 << kMantissaBits));
    const __m512i shift = _mm512_mask_sub_epi16(exponent, normal, exponent, one);
    // Twice the units and one shift more, so that half of the last place is always a whole number.
    // Shifts of 16 and more give 0.
    const __m512i down = _mm512_sub_epi16(scale, shift);
    const __m512i twice = _mm512_slli_epi16(units, 1);
    const __m512i more = _mm512_add_epi16(down, one);
    const __m512i odd = _mm512_and_si512(_mm512_srlv_epi16(twice, more), one);
    const __m512i half = _mm512_sub_epi16(_mm512_sllv_epi16(one, down), one);
    __m512i code = _mm512_srlv_epi16(_mm512_add_epi16(_mm512_add_epi16(twice, half), odd), more);
    code = _mm512_min_epu16(code, Word(127));
    code = _mm512_mask_sub_epi16(code, _mm512_movepi16_mask(bits), _mm512_setzero_si512(), code);
    _mm256_mask_storeu_epi8(codes + i, mask, _mm512_cvtepi16_epi8(code));
  }
}

template <int kMantissaBits>
void RestoreRun(const int8_t* codes, const uint8_t* scales, size_t count, uint8_t* elements) {
  for (size_t i = 0; i < count; i += kLanes) {
    const __mmask32 mask = MaskOf(count - i);
    const __m512i code = _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, codes + i));
    const __m512i scale = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, scales + i));
    const __m512i units = _mm512_abs_epi16(code);
    // Shifted up until bit 6 is the highest: by 4, 2, 1.
    __m512i mantissa = units;
    __m512i top = Word(6);
    for (const int step : {4, 2, 1}) {
      const __mmask32 low = _mm512_cmplt_epu16_mask(mantissa, Word(1 << (7 - step)));
      mantissa = _mm512_mask_slli_epi16(mantissa, low, mantissa, static_cast<unsigned>(step));
      top = _mm512_mask_sub_epi16(top, low, top, Word(step));
    }
    const __m512i place = _mm512_add_epi16(top, scale);
    const __m512i exponent = _mm512_sub_epi16(place, Word(kMantissaBits));
    __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(exponent, kMantissaBits),
                                    _mm512_slli_epi16(mantissa, kMantissaBits - 6));
    const __mmask32 subnormal =
        _mm512_cmplt_epi16_mask(place, Word(kMantissaBits)) | _mm512_testn_epi16_mask(units, units);
    bits = _mm512_mask_sllv_epi16(bits, subnormal, units, scale);
    const __m512i sign = _mm512_and_si512(code, Word(-0x8000));
    _mm512_mask_storeu_epi16(elements + 2 * i, mask, _mm512_or_si512(bits, sign));
  }
}

void Quantise(bool fp16, const uint8_t* elements, const uint8_t* scales, size_t count,
              int8_t* codes) {
  (fp16 ? QuantiseRun<10> : QuantiseRun<7>)(elements, scales, count, codes);
}

void Restore(bool fp16, const int8_t* codes, const uint8_t* scales, size_t count,
             uint8_t* elements) {
  (fp16 ? RestoreRun<10> : RestoreRun<7>)(codes, scales, count, elements);
}

}  // namespace

const Int8Loops kAvx512Int8Loops = {Largest, Quantise, Restore};

}  // namespace cairn::internal
#endif
