// SPDX-License-Identifier: Apache-2.0
//
// Rows of bf16 and fp16 for tests of shadows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/seeded_random.h"
#include "base/shadow/shadow_math.h"

namespace cairn::testing {

enum class Rows {
  kKeys,    // A scale and a mean for each channel, as keys have them.
  kEqual,   // Channels that are the same in all rows.
  kCoarse,  // Few different values, zeros of both signs among them.
  kWide,    // All that is fit: subnormals to the largest.
};
inline constexpr Rows kRows[] = {Rows::kKeys, Rows::kEqual, Rows::kCoarse, Rows::kWide};

// Never out of range. `rows` rows, one after the other.
std::vector<uint16_t> MakeRows(SeededRandom& random, Rows kind, bool fp16, uint32_t channels,
                               size_t rows);

// `rows` as they are stored: whole blocks.
std::vector<std::byte> StoreBlocks(const shadow::BlockLayout& layout, bool fp16,
                                   std::span<const uint16_t> rows);

}  // namespace cairn::testing
