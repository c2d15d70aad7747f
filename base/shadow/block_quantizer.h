// SPDX-License-Identifier: Apache-2.0
//
// Quantises blocks of 64 rows of bf16 or fp16 by channel to 4 or 8 bits (docs/shadow.md). The value
// of a code is CodeValue of shadow_math.h; it differs from the element by at most half a scale and
// one rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/shadow/shadow_math.h"

namespace cairn::shadow {

// Elements of this magnitude or above, infinities and NaNs are out of range: with smaller ones no
// sum of squares over a row, no scale and no value of a code leaves the finite numbers.
inline constexpr float kMagnitudeLimitBf16 = 0x1p59F;
inline constexpr float kMagnitudeLimitF16 = 0x1p15F;

// The index of the first element out of range.
std::optional<size_t> FindOutOfRange(bool fp16, std::span<const uint16_t> elements);

// kBlockRows rows, one after the other, into layout.block_bytes().
// REQUIRES: no element is out of range; just that many.
void QuantiseBlock(const BlockLayout& layout, bool fp16, std::span<const uint16_t> rows,
                   std::span<std::byte> block);

// The values of `rows.size() / channels` rows of the block, from `first` on.
void ReadBlock(const BlockLayout& layout, bool fp16, std::span<const std::byte> block,
               uint32_t first, std::span<uint16_t> rows);

}  // namespace cairn::shadow
