// SPDX-License-Identifier: Apache-2.0
//
// Elements for tests of the KV codec.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace cairn::testing
