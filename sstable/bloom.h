// SPDX-License-Identifier: Apache-2.0
//
// Bloom filters (B. Bloom, CACM 13(7), 1970) over 64-bit hashes of keys, with the positions of a
// key taken from one hash by double hashing (A. Kirsch and M. Mitzenmacher, ESA 2006). On disk as
// part of a partition; the arithmetic never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/codec/hash.h"

namespace cairn::sstable {

// The hash of a key that filters hold. It is plain XXH3: a filter is protected by its block's hash.
inline uint64_t FilterHash(std::string_view key) { return Hash(std::as_bytes(std::span(key))); }

// Returns the size of a filter over this many keys, in bytes: a multiple of 8.
size_t FilterBytes(size_t keys);

std::string BuildFilter(std::span<const uint64_t> hashes);

// False only for a key that was not put in. Any filter of at least one byte is safe to query.
bool FilterMayContain(std::span<const std::byte> filter, uint32_t probes, uint64_t hash);

}  // namespace cairn::sstable
