// SPDX-License-Identifier: Apache-2.0
//
// Bytes written in each hour of the last day, as the endurance of SSDs is given. The hours are
// those of the wall clock, which is only recorded here: when it jumps, hours come out wrong or
// missing, and nothing else depends on them.
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
  // In the 24 hours up to now. The hour in which they begin counts in proportion, as if it had been
  // written evenly.
  uint64_t LastDay(uint64_t now_ns) const;

  // As in MANIFEST-n: {hour since 1970 u64, bytes u64} of each hour that is not 0.
  std::vector<std::byte> Encode() const;
  // Skips unreadable entries: nothing depends on them.
  static HourlyWriteCounter Decode(std::span<const std::byte> bytes);

 private:
  struct Hour {
    uint64_t hour = 0, bytes = 0;
  };
  static_assert(sizeof(Hour) == 16);
  static constexpr uint64_t kHours = 25;  // The present hour, and those of the day before.
  std::array<Hour, kHours> hours_{};      // Each at hour % kHours.
};

}  // namespace cairn::engine
