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

// The node's path has, up to `position`, tokens of this hash.
struct PrefixEntry {
  uint64_t hash = 0;
  uint64_t node = 0;
  uint64_t position = 0;
  bool operator==(const PrefixEntry&) const = default;
};

// The first letter of every key of a prefix, and a key that lies behind all of them.
inline constexpr char kPrefixLetter = 'P';
inline constexpr std::string_view kPrefixesEnd = "Q";
std::string PrefixKey(uint64_t hash, uint64_t node);
std::string PrefixKeysOf(uint64_t hash);  // Begins the keys of all nodes with this hash.
std::string PrefixValue(uint64_t position);
// Nothing: it is none, so the hints are damaged.
std::optional<PrefixEntry> GetPrefix(std::string_view key, std::string_view value);

// One record says which version of hashes and keys the hints have. If it has another value, the
// hints are rebuilt.
inline constexpr std::string_view kHintHeadKey = "C";
std::string HintHeadValue();

// How many tokens of what is indexed are gone, about; one record, of the last flush.
inline constexpr std::string_view kHintDeadKey = "D";
std::string HintDeadValue(uint64_t tokens);
std::optional<uint64_t> GetHintDead(std::string_view value);

}  // namespace cairn::engine
