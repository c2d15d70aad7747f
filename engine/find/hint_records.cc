// SPDX-License-Identifier: Apache-2.0
#include "engine/find/hint_records.h"

#include <bit>

#include "engine/find/constants.h"

namespace cairn::engine {

namespace {

constexpr size_t kPrefixKeyBytes = 17;
constexpr size_t kHashKeyBytes = 9;  // The letter and the hash.
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

// The complement of: how many bytes the number has, and these bytes. So keys of larger numbers come
// first, and small numbers are short.
void PutFalling(std::string* key, uint64_t number) {
  const int bytes = (std::bit_width(number) + 7) / 8;
  key->push_back(static_cast<char>(~bytes));
  for (int i = bytes - 1; i >= 0; --i) key->push_back(static_cast<char>(~(number >> (8 * i))));
}

// Takes one off the front. Nothing: there is none in its shortest form, or it is 0.
std::optional<uint64_t> TakeFalling(std::string_view* key) {
  if (key->empty()) return std::nullopt;
  const auto bytes = static_cast<uint8_t>(~static_cast<uint8_t>(key->front()));
  if (bytes == 0 || bytes > sizeof(uint64_t) || key->size() <= bytes) return std::nullopt;
  uint64_t number = 0;
  for (size_t i = 1; i <= bytes; ++i) {
    number = number << 8 | static_cast<uint8_t>(~static_cast<uint8_t>((*key)[i]));
  }
  if (number >> (8 * (bytes - 1)) == 0) return std::nullopt;
  key->remove_prefix(bytes + size_t{1});
  return number;
}

}  // namespace

std::string KeyOf(const HintEntry& entry) {
  return entry.kind == HintKind::kPrefix ? PrefixKey(entry.hash, entry.node)
                                         : ChunkKey(entry.hash, entry.node, entry.position);
}

std::string ValueOf(const HintEntry& entry) {
  return entry.kind == HintKind::kPrefix ? PrefixValue(entry.position) : std::string();
}

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

std::optional<HintEntry> GetPrefix(std::string_view key, std::string_view value) {
  if (key.size() != kPrefixKeyBytes || key[0] != kPrefixLetter) return std::nullopt;
  const std::optional<uint64_t> position = GetVarint(value);
  if (!position.has_value() || *position == 0) return std::nullopt;
  return HintEntry{
      .hash = GetBig(key.substr(1, 8)), .node = ~GetBig(key.substr(9, 8)), .position = *position};
}

std::string ChunkKeysOf(uint64_t hash) {
  std::string key(1, kChunkLetter);
  PutBig(&key, hash);
  return key;
}

std::string ChunkKey(uint64_t hash, uint64_t node, uint64_t position) {
  std::string key = ChunkKeysOf(hash);
  PutFalling(&key, node);
  PutFalling(&key, position);
  return key;
}

std::optional<HintEntry> GetChunk(std::string_view key, std::string_view value) {
  if (key.size() < kHashKeyBytes || key[0] != kChunkLetter || !value.empty()) return std::nullopt;
  const uint64_t hash = GetBig(key.substr(1, 8));
  key.remove_prefix(kHashKeyBytes);
  const std::optional<uint64_t> node = TakeFalling(&key);
  if (!node.has_value()) return std::nullopt;
  const std::optional<uint64_t> position = TakeFalling(&key);
  if (!position.has_value() || *position < kChunkIds || !key.empty()) return std::nullopt;
  return HintEntry{.hash = hash, .node = *node, .position = *position, .kind = HintKind::kChunk};
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
