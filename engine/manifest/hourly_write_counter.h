// SPDX-License-Identifier: Apache-2.0
//
// How much was written in which hour, for the last day: what an SSD's endurance is bought in. The
// hours are those of the wall clock, which is only written down here: when it jumps, hours come out
// wrong or missing, and nothing else depends on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::engine {

class HourlyWriteCounter {
 public:
  void Add(uint64_t now_ns, uint64_t bytes);
  // In the 24 hours up to now. Of the hour in which they begin the part that belongs to them, as if
  // it had been written evenly.
  uint64_t LastDay(uint64_t now_ns) const;

  // As in MANIFEST-n: {hour since 1970 u64, bytes u64} of each hour that has something.
  std::vector<std::byte> Encode() const;
  // What cannot be read is left out: nothing depends on it.
  static HourlyWriteCounter Decode(std::span<const std::byte> bytes);

 private:
  struct Hour {
    uint64_t hour = 0, bytes = 0;
  };
  static_assert(sizeof(Hour) == 16);
  static constexpr uint64_t kHours = 25;  // The present one, and those in which the day began.
  std::array<Hour, kHours> hours_{};      // Each at hour % kHours.
};

}  // namespace cairn::engine
