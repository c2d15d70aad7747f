// SPDX-License-Identifier: Apache-2.0
//
// Checksums. One family everywhere: XXH3-64 (https://xxhash.com). The widest vector path that the
// processor has is chosen at run time; all paths give the same value.
//
// A stored checksum is always bound to its place, so that right bytes in the wrong place fail:
//   stored = SealHash(Hash(bytes), place seed)
// The content is hashed first and sealed afterwards because the place in the log of a delta is
// known only when its group is formed, while its bytes are hashed when they are copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

// 128 random bits drawn when a store is created; part of every place.
struct StoreId {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const StoreId&) const = default;
};

uint64_t Hash(std::span<const std::byte> bytes);

// XXH3-128, for content whose bytes are not compared.
struct Digest {
  uint64_t low = 0, high = 0;
  bool operator==(const Digest&) const = default;
};
Digest HashWide(std::span<const std::byte> bytes);

// The seed of a place: which store, which file (segment or table number), which use of that file
// (epoch), which byte offset in it.
uint64_t PlaceSeed(const StoreId& store, uint64_t file_number, uint64_t epoch, uint64_t offset);

uint64_t SealHash(uint64_t content_hash, uint64_t place_seed);

// "avx512", "avx2", "sse2", "neon" or "scalar": the path in use.
const char* HashPathName();

}  // namespace cairn
