// SPDX-License-Identifier: Apache-2.0
//
// Rounding to the boundaries of blocks and records.
#pragma once

#include <cstdint>

namespace cairn {

// The next multiple of `alignment`, a power of two, from `value` on.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace cairn
