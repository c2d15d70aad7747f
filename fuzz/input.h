// SPDX-License-Identifier: Apache-2.0
//
// Shared by the fuzz targets: taking values off the front of an input, and damaging the files of a
// simulated disk as an input says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/disk.h"

namespace cairn::fuzz {

// An input as a sequence of values, front to back; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t bytes)
      : rest_(reinterpret_cast<const std::byte*>(data), bytes) {}

  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = std::min(sizeof(T), rest_.size());
    std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  // Below `limit`, which is not 0.
  uint64_t Below(uint64_t limit) { return Take<uint32_t>() % limit; }
  std::span<const std::byte> rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

// Damage as disks do it to their content. One step for each eight bytes of the input.
inline void Damage(io::SimDisk& disk, Input& input) {
  constexpr size_t kStepsMax = 64;
  constexpr uint64_t kSectorBytes = 512;
  const std::vector<std::string> files = disk.Files();
  if (files.empty()) return;
  for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) {
    const uint8_t kind = input.Take<uint8_t>();
    const std::string& path = files[input.Take<uint8_t>() % files.size()];
    const uint16_t value = input.Take<uint16_t>();
    const auto info = disk.Info(path);
    if (!info.ok() || info->bytes == 0) continue;  // Removed, or cut to nothing.
    const uint64_t offset = input.Below(info->bytes);
    const uint64_t sector = offset / kSectorBytes * kSectorBytes;
    const uint64_t in_sector = std::min<uint64_t>(kSectorBytes, info->bytes - sector);
    const auto write = [&](uint64_t at, std::span<const std::byte> bytes) {
      static_cast<void>(disk.WriteRaw(path, at, bytes));
    };
    const auto copy_from = [&](const std::string& other, uint64_t from) {
      const auto bytes = disk.ReadRaw(other, from, in_sector);
      if (bytes.ok()) write(sector, *bytes);
    };
    switch (kind % 6) {
      case 0: static_cast<void>(disk.FlipBit(path, offset, value % 8)); break;
      case 1: {
        const auto byte = static_cast<std::byte>(value);
        write(offset, {&byte, 1});
        break;
      }
      case 2: write(sector, std::vector<std::byte>(in_sector)); break;
      case 3:  // A sector of the same file...
        copy_from(path, value % ((info->bytes + kSectorBytes - 1) / kSectorBytes) * kSectorBytes);
        break;
      case 4: copy_from(files[value % files.size()], sector); break;  // ...or of another.
      default:
        if (value % 4 == 0) {
          static_cast<void>(disk.Remove(path));
        } else {
          static_cast<void>(disk.TruncateRaw(path, offset));
        }
        break;
    }
  }
}

}  // namespace cairn::fuzz
