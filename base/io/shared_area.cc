// SPDX-License-Identifier: Apache-2.0
#include "base/io/shared_area.h"

#include <charconv>

namespace cairn::io {
namespace {

constexpr std::string_view kScheme = "cairn-area", kVersion = "1", kNoHost = "-";
constexpr size_t kAddressBytesMax = 8192, kHostDigits = 32;
constexpr std::string_view kNamePrefix = "area-";
constexpr size_t kNameDigits = 16;
constexpr char kDigits[] = "0123456789abcdef";

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "address of a shared area: " + what);
}

int DigitOf(char digit) {
  const std::string_view digits(kDigits);
  const size_t at = digits.find(digit);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

bool AllDigits(std::string_view text) {
  for (const char digit : text) {
    if (DigitOf(digit) < 0) return false;
  }
  return true;
}

}  // namespace

bool IsAreaName(std::string_view name) {
  return name.starts_with(kNamePrefix) && name.size() == kNamePrefix.size() + kNameDigits &&
         AllDigits(name.substr(kNamePrefix.size()));
}

std::string AreaAddress::Text() const {
  std::string text(kScheme);
  text += ':';
  text += kVersion;
  text += ':';
  text += host.empty() ? std::string(kNoHost) : host;
  text += ':';
  for (const uint8_t byte : nonce) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text + ':' + std::to_string(bytes) + ':' + socket;
}

// The path comes last, and may have colons.
Result<AreaAddress> AreaAddress::Parse(std::string_view text) {
  if (text.size() > kAddressBytesMax) return Bad(std::to_string(text.size()) + " bytes long");
  std::array<std::string_view, 6> parts;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return Bad("it has fewer than six parts");
    parts[i] = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  parts.back() = text;
  AreaAddress address;
  if (parts[0] != kScheme) return Bad("it does not begin with cairn-area");
  if (parts[1] != kVersion) return Bad("its version is not 1");
  if (parts[2] != kNoHost) {
    if (parts[2].size() != kHostDigits || !AllDigits(parts[2])) return Bad("its host is no id");
    address.host = parts[2];
  }
  if (parts[3].size() != 2 * address.nonce.size() || !AllDigits(parts[3])) {
    return Bad("its nonce is not 32 hex digits");
  }
  for (size_t i = 0; i < address.nonce.size(); ++i) {
    address.nonce[i] =
        static_cast<uint8_t>(DigitOf(parts[3][2 * i]) << 4 | DigitOf(parts[3][2 * i + 1]));
  }
  const char* const end = parts[4].data() + parts[4].size();
  const auto [stop, error] = std::from_chars(parts[4].data(), end, address.bytes);
  if (error != std::errc() || stop != end || address.bytes == 0 || address.bytes > kAreaBytesMax) {
    return Bad("its size is no number of bytes");
  }
  if (!parts[5].starts_with('/') || parts[5].find('\0') != std::string_view::npos) {
    return Bad("its path is not absolute");
  }
  address.socket = parts[5];
  return address;
}

bool AreaAddress::HasNonce(std::span<const uint8_t> other) const {
  if (other.size() != nonce.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < nonce.size(); ++i) difference |= nonce[i] ^ other[i];
  return difference == 0;
}

}  // namespace cairn::io
