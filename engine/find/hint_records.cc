// SPDX-License-Identifier: Apache-2.0
#include "engine/find/hint_records.h"

#include "engine/find/constants.h"

namespace cairn::engine {

namespace {

constexpr size_t kPrefixKeyBytes = 17;
constexpr size_t kPositionBytesMax = 10;

void PutBig(std::string* key, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) key->push_back(static_cast<char>(value >> shift));
}

uint64_t GetBig(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

// Seven bits per byte, the lowest first; the last byte has its top bit clear.
void PutVarint(std::string* value, uint64_t number) {
  for (; number >= 0x80; number >>= 7) value->push_back(static_cast<char>(number | 0x80));
  value->push_back(static_cast<char>(number));
}

// Reads a value that is one number and nothing else, in its shortest form alone.
std::optional<uint64_t> GetVarint(std::string_view value) {
  if (value.empty() || value.size() > kPositionBytesMax) return std::nullopt;
  uint64_t number = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const auto byte = static_cast<uint8_t>(value[i]);
    const bool last = i + 1 == value.size();
    if (((byte & 0x80) == 0) != last || (last && byte == 0 && i != 0)) return std::nullopt;
    if (i + 1 == kPositionBytesMax && byte > 1) return std::nullopt;
    number |= uint64_t{byte & 0x7Fu} << (7 * i);
  }
  return number;
}

}  // namespace

std::string PrefixKeysOf(uint64_t hash) {
  std::string key(1, kPrefixLetter);
  PutBig(&key, hash);
  return key;
}

std::string PrefixKey(uint64_t hash, uint64_t node) {
  std::string key = PrefixKeysOf(hash);
  PutBig(&key, ~node);
  return key;
}

std::string PrefixValue(uint64_t position) {
  std::string value;
  PutVarint(&value, position);
  return value;
}

std::optional<PrefixEntry> GetPrefix(std::string_view key, std::string_view value) {
  if (key.size() != kPrefixKeyBytes || key[0] != kPrefixLetter) return std::nullopt;
  const std::optional<uint64_t> position = GetVarint(value);
  if (!position.has_value() || *position == 0) return std::nullopt;
  return PrefixEntry{GetBig(key.substr(1, 8)), ~GetBig(key.substr(9, 8)), *position};
}

std::string HintHeadValue() {
  std::string value;
  PutVarint(&value, kHintAlgorithm);
  PutVarint(&value, kPrefixBlock);
  return value;
}

std::string HintDeadValue(uint64_t tokens) {
  std::string value;
  PutVarint(&value, tokens);
  return value;
}

std::optional<uint64_t> GetHintDead(std::string_view value) { return GetVarint(value); }

}  // namespace cairn::engine
