// SPDX-License-Identifier: Apache-2.0
//
// Sizes of lent memory: eight steps between one power of two and the next, so that rounding up
// costs an eighth at most. Shared by the arenas. Pure; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/core/align.h"

namespace cairn {

inline constexpr size_t kSizeSteps = 8;  // From one power of two to the next.

// Bytes from one class to the next.
constexpr size_t SizeStep(size_t bytes) {
  return std::max<size_t>(std::bit_floor(bytes) / kSizeSteps, 1);
}
constexpr size_t RoundUpSize(size_t bytes) { return AlignUp(bytes, SizeStep(bytes)); }

// The classes from `smallest`, a power of two, on: 0, 1 and so on. `rounded` is one of them.
constexpr size_t SizeIndex(size_t rounded, size_t smallest) {
  const size_t floor = std::bit_floor(rounded);
  return static_cast<size_t>(std::countr_zero(floor) - std::countr_zero(smallest)) * kSizeSteps +
         (rounded - floor) / SizeStep(rounded);
}
constexpr size_t SizeOfIndex(size_t index, size_t smallest) {
  const size_t floor = smallest << (index / kSizeSteps);
  return floor + (index % kSizeSteps) * SizeStep(floor);
}

}  // namespace cairn
