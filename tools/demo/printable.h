// SPDX-License-Identifier: Apache-2.0
//
// Text out of a model, made fit for a terminal: a model may say anything, escape sequences
// included.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace cairn::demo {

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none.
inline size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.empty()) return 0;
  const uint8_t first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = length == 1 ? first : first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return overlong || surrogate || code > 0x10ffff ? 0 : length;
}

// One line: a line feed becomes the sign for it, other control characters (those of Latin-1
// included) and bytes that are no UTF-8 become \xNN.
inline std::string Printable(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8Length(text), 1);
    const uint8_t first = static_cast<uint8_t>(text[0]);
    const bool latin1_control =
        length == 2 && first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
    if (first == '\n') {
      line += "\u21b5";
    } else if (first < 0x20 || first == 0x7f || Utf8Length(text) == 0 || latin1_control) {
      for (const char c : text.substr(0, length)) {
        char escape[8];
        std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<uint8_t>(c));
        line += escape;
      }
    } else {
      line += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return line;
}

// Characters of a printable line. Wide and combining ones count as one.
inline size_t Columns(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first `count` characters of a line, and what follows them.
inline size_t BytesOfColumns(std::string_view line, size_t count) {
  size_t bytes = 0;
  for (; bytes < line.size(); ++bytes) {
    const bool begins = (line[bytes] & 0xc0) != 0x80;
    if (begins && count-- == 0) break;
  }
  return bytes;
}

// At most `columns` (1 or more) of a line; an ellipsis stands for an end that was cut.
inline std::string Clip(std::string_view line, size_t columns) {
  if (Columns(line) <= columns) return std::string(line);
  return std::string(line.substr(0, BytesOfColumns(line, columns - 1))) + "\u2026";
}

// The same for the beginning.
inline std::string ClipFront(std::string_view line, size_t columns) {
  const size_t all = Columns(line);
  if (all <= columns) return std::string(line);
  return "\u2026" + std::string(line.substr(BytesOfColumns(line, all - (columns - 1))));
}

// `text` and then spaces, `columns` in all or more.
inline std::string Padded(std::string_view text, size_t columns) {
  const size_t have = Columns(text);
  return std::string(text) + std::string(have < columns ? columns - have : 0, ' ');
}

}  // namespace cairn::demo
