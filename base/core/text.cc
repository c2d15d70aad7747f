// SPDX-License-Identifier: Apache-2.0
#include "base/core/text.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace cairn {

namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with one in UTF-8.
};

// Decodes the first character. REQUIRES: the text is not empty.
Character FirstOf(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead > 0xf7 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};  // Smaller codes are overlong.
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029;
}

// Marks, embeddings, overrides and isolates: the text behind is shown in another order.
bool TurnsDirection(uint32_t code) {
  return code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string EscapedWith(std::string_view text, std::string_view more) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character first = FirstOf(text);
    const bool escape = first.bytes == 0 || IsControl(first.code) || TurnsDirection(first.code) ||
                        more.find(text[0]) != std::string_view::npos;
    const size_t bytes = first.bytes == 0 ? 1 : first.bytes;
    for (const char c : text.substr(0, bytes)) {
      if (!escape) {
        result += c;
        continue;
      }
      result += {'\\', 'x', kDigits[static_cast<uint8_t>(c) >> 4], kDigits[c & 15]};
    }
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string Printable(std::string_view text) { return EscapedWith(text, ""); }
std::string Escaped(std::string_view text) { return EscapedWith(text, "\"\\"); }
std::string Quoted(std::string_view text) { return '"' + Escaped(text) + '"'; }

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  std::snprintf(text, sizeof text, whole || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

}  // namespace cairn
