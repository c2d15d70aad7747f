// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/hex.h"

#include <algorithm>

namespace cairn::engine {

namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void AddDigest(std::span<const std::byte> block, std::vector<std::byte>* into) {
  const auto bytes = BytesOf(HashWide(block));
  into->insert(into->end(), bytes.begin(), bytes.end());
}

}  // namespace

std::string HexOf(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) >> 4];
    text += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return text;
}

std::optional<std::string> BytesOfHex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = DigitOf(digits[i]), low = DigitOf(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::array<std::byte, 16> BytesOf(const Digest& digest) {
  std::array<std::byte, 16> bytes{};
  for (size_t i = 0; i < 8; ++i) {
    const size_t shift = 56 - 8 * i;
    bytes[i] = static_cast<std::byte>(digest.high >> shift);
    bytes[8 + i] = static_cast<std::byte>(digest.low >> shift);
  }
  return bytes;
}

std::string HexOf(const Digest& digest) {
  const auto bytes = BytesOf(digest);
  return HexOf(std::span(bytes));
}

void BlockDigest::Add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (block_.empty() && bytes.size() >= kBlockBytes) {
      AddDigest(bytes.first(kBlockBytes), &digests_);
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const size_t more = std::min(bytes.size(), kBlockBytes - block_.size());
    block_.insert(block_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(more));
    bytes = bytes.subspan(more);
    if (block_.size() < kBlockBytes) return;
    AddDigest(block_, &digests_);
    block_.clear();
  }
}

Digest BlockDigest::Finish() const {
  std::vector<std::byte> digests = digests_;
  if (!block_.empty()) AddDigest(block_, &digests);
  return HashWide(digests);
}

}  // namespace cairn::engine
