// SPDX-License-Identifier: Apache-2.0
//
// The records of the hints, byte by byte (FORMAT.md). Keys in order of their bytes are in the order
// in which a search wants them: those of one hash together, the newest node first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::engine {

enum class HintKind : uint8_t {
  kPrefix,  // The node's path has, up to `position`, tokens of this hash.
  kChunk,   // The node's path has a run of ids with this fingerprint that ends at `position`.
};

struct HintEntry {
  uint64_t hash = 0;
  uint64_t node = 0;
  uint64_t position = 0;
  HintKind kind = HintKind::kPrefix;
  bool operator==(const HintEntry&) const = default;
};
std::string KeyOf(const HintEntry& entry);
std::string ValueOf(const HintEntry& entry);

// The first letter of every key of a prefix, and a key that lies behind all of them.
inline constexpr char kPrefixLetter = 'P';
inline constexpr std::string_view kPrefixesEnd = "Q";
std::string PrefixKey(uint64_t hash, uint64_t node);
std::string PrefixKeysOf(uint64_t hash);  // Begins the keys of all nodes with this hash.
std::string PrefixValue(uint64_t position);
// Nothing: it is none, so the hints are damaged.
std::optional<HintEntry> GetPrefix(std::string_view key, std::string_view value);

// The same for chunks. A node may have one fingerprint at many positions, the last comes first.
inline constexpr char kChunkLetter = 'W';
inline constexpr std::string_view kChunksEnd = "X";
std::string ChunkKey(uint64_t hash, uint64_t node, uint64_t position);
std::string ChunkKeysOf(uint64_t hash);
std::optional<HintEntry> GetChunk(std::string_view key, std::string_view value);

// One record says which version of hashes and keys the hints have. If it has another value, the
// hints are rebuilt.
inline constexpr std::string_view kHintHeadKey = "C";
std::string HintHeadValue();

// How many tokens of what is indexed are gone, about; one record, of the last flush.
inline constexpr std::string_view kHintDeadKey = "D";
std::string HintDeadValue(uint64_t tokens);
std::optional<uint64_t> GetHintDead(std::string_view value);

}  // namespace cairn::engine
