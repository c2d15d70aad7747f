// SPDX-License-Identifier: Apache-2.0
//
// Elements for tests of the codec, and the examples of its document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/codec/kv_frame.h"

namespace cairn::testing {

enum class Content {
  kKeys,        // A scale per channel; signs that mostly stay; a few outliers.
  kValues,      // One scale, no memory.
  kRandomBits,  // Nothing to gain.
  kMixed,       // A run of each of: zeros, infinities, NaNs, denormals, extremes, values, noise.
  kSparse,      // Zeros with a few values: one symbol takes nearly all slots.
  kEscapes,     // Exponents so far apart that most are escaped.
};
inline constexpr Content kContents[] = {Content::kKeys,  Content::kValues, Content::kRandomBits,
                                        Content::kMixed, Content::kSparse, Content::kEscapes};
const char* ContentName(Content content);

// shape.raw_bytes() bytes; the same on every machine. Elements that are not of 16 bits get random
// bits, whatever `content` says.
std::vector<std::byte> MakeElements(const FrameShape& shape, Content content, uint64_t seed);

// The bytes that base/codec/FORMAT.md shows between `heading` and the next one: lines of an offset,
// a colon and bytes in hex.
std::vector<std::byte> ExampleBytes(const std::string& heading);

}  // namespace cairn::testing
