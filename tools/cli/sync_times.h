// SPDX-License-Identifier: Apache-2.0
//
// What two ways of making a write durable take, measured several times, and what may be said of
// them on a machine that does other things meanwhile: only what lies beyond the spread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::cli {

// The spread of repeated measurements.
struct Spread {
  uint64_t low_ns = 0, middle_ns = 0, high_ns = 0;

  bool IsNarrow() const { return high_ns <= low_ns + low_ns / 4; }
};

// `measured`: one at least.
inline Spread SpreadOf(std::vector<uint64_t> measured) {
  std::sort(measured.begin(), measured.end());
  return {measured.front(), measured[measured.size() / 2], measured.back()};
}

// The times of one durable write of one size.
struct SyncTimes {
  Spread fdatasync, dsync;
  size_t repeats = 0;
};

// Whether all measurements of `one` were faster than all of `other`, by 1/`share` of its time.
inline bool IsFaster(const Spread& one, const Spread& other, uint64_t share) {
  return one.high_ns + one.high_ns / share < other.low_ns;
}

// Whether a store that uses `used` for small writes and for large ones should use the other: small
// ones would take two thirds of the time or less, and large ones not more than now.
inline bool IsWorthAChange(const Spread& used, const Spread& other, const Spread& used_large,
                           const Spread& other_large) {
  constexpr uint64_t kHalf = 2, kSixteenth = 16;
  return IsFaster(other, used, kHalf) && !IsFaster(used_large, other_large, kSixteenth);
}

}  // namespace cairn::cli
