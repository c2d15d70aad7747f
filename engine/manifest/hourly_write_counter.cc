// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest/hourly_write_counter.h"

#include <cstring>

namespace cairn::engine {

namespace {
constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint64_t kDayHours = 24;
}  // namespace

void HourlyWriteCounter::Add(uint64_t now_ns, uint64_t bytes) {
  const uint64_t hour = now_ns / kHourNs;
  Hour& slot = hours_[hour % kHours];
  if (slot.hour != hour) slot = {hour, 0};
  slot.bytes += bytes;
}

uint64_t HourlyWriteCounter::LastDay(uint64_t now_ns) const {
  const uint64_t now = now_ns / kHourNs;
  uint64_t bytes = 0;
  for (const Hour& slot : hours_) {
    if (slot.hour > now || now - slot.hour > kDayHours) continue;
    if (now - slot.hour < kDayHours) {
      bytes += slot.bytes;
      continue;
    }
    const auto left = static_cast<double>(kHourNs - now_ns % kHourNs) / kHourNs;
    bytes += static_cast<uint64_t>(static_cast<double>(slot.bytes) * left);
  }
  return bytes;
}

std::vector<std::byte> HourlyWriteCounter::Encode() const {
  std::vector<std::byte> bytes;
  for (const Hour& slot : hours_) {
    if (slot.bytes == 0) continue;
    const auto* const begin = reinterpret_cast<const std::byte*>(&slot);
    bytes.insert(bytes.end(), begin, begin + sizeof slot);
  }
  return bytes;
}

HourlyWriteCounter HourlyWriteCounter::Decode(std::span<const std::byte> bytes) {
  HourlyWriteCounter hours;
  for (; bytes.size() >= sizeof(Hour); bytes = bytes.subspan(sizeof(Hour))) {
    Hour hour;
    std::memcpy(&hour, bytes.data(), sizeof hour);
    hours.hours_[hour.hour % kHours] = hour;
  }
  return hours;
}

}  // namespace cairn::engine
