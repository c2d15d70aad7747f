// SPDX-License-Identifier: Apache-2.0
//
// Whether text is UTF-8, as JSON and MessagePack demand.
#pragma once

#include <cstdint>
#include <string_view>

namespace cairn::engine {

// No second spelling of a character, no surrogates, nothing beyond U+10FFFF.
inline bool IsUtf8(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  for (size_t i = 0; i < text.size();) {
    const uint8_t first = byte(i++);
    if (first < 0x80) continue;
    const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || text.size() - i < more) return false;
    const uint8_t second = byte(i);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
      return false;
    }
    for (size_t k = 0; k < more; ++k) {
      if ((byte(i++) & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace cairn::engine
