// SPDX-License-Identifier: Apache-2.0
//
// Text out of a model, made fit for a terminal: a model may say anything, escape sequences
// included.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/core/text.h"

namespace cairn::demo {

// One line: a line feed becomes the sign for it.
inline std::string Printable(std::string_view text) {
  std::string line;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    line += cairn::Printable(text.substr(0, end));
    if (end == text.size()) return line;
    line += "\u21b5";
    text.remove_prefix(end + 1);
  }
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
