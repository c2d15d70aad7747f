// SPDX-License-Identifier: Apache-2.0
//
// Copies that write past the caches, as memcpy does when it is given much at once: a line that is
// written whole need not be read first, which is a third of the memory's work. For large copies in
// small pieces, of which memcpy cannot know that they are parts of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cairn {

inline constexpr size_t kLineBytes = 64;

// As memcpy. Other threads see it after StreamEnd. What is no whole line goes as with memcpy.
inline void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  const size_t before = (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes;
  if (bytes >= before + kLineBytes) {
    std::memcpy(to, from, before);
    to += before;
    from += before;
    bytes -= before;
    for (; bytes >= kLineBytes; to += kLineBytes, from += kLineBytes, bytes -= kLineBytes) {
      const auto* const source = reinterpret_cast<const __m128i*>(from);
      auto* const target = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
  }
#endif
  std::memcpy(to, from, bytes);
}

inline void StreamEnd() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace cairn
