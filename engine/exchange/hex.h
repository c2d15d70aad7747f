// SPDX-License-Identifier: Apache-2.0
//
// Hexadecimal digits, and digests as exports write them: those that `xxhsum -H2` prints.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/codec/hash.h"

namespace cairn::engine {

std::string HexOf(std::span<const std::byte> bytes);
// Nothing: it has other characters than pairs of digits.
std::optional<std::string> BytesOfHex(std::string_view digits);

// The canonical bytes of XXH3-128, most significant first.
std::array<std::byte, 16> BytesOf(const Digest& digest);
std::string HexOf(const Digest& digest);

// XXH3-128 of the XXH3-128 of each block of 1 MiB. So nothing has to be in memory at once.
class BlockDigest {
 public:
  static constexpr size_t kBlockBytes = 1u << 20;
  void Add(std::span<const std::byte> bytes);
  Digest Finish() const;

 private:
  std::vector<std::byte> block_;    // Not whole yet.
  std::vector<std::byte> digests_;  // Of whole blocks.
};

}  // namespace cairn::engine
