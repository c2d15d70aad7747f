// SPDX-License-Identifier: Apache-2.0
#include "base/io/volume.h"

#include <algorithm>
#include <iterator>

namespace cairn::io {

Overwrites OverwritesOn(std::string_view file_system) {
  constexpr std::string_view kCopying[] = {"btrfs", "zfs", "bcachefs", "simulated, copying"};
  // f2fs writes elsewhere, but into room that it keeps for that.
  constexpr std::string_view kInPlace[] = {"ext4",  "f2fs",  "vfat",   "exfat",
                                           "tmpfs", "ramfs", "memory", "simulated"};
  const auto in = [file_system](const auto& names) {
    return std::find(std::begin(names), std::end(names), file_system) != std::end(names);
  };
  if (in(kCopying)) return Overwrites::kCopy;
  return in(kInPlace) ? Overwrites::kInPlace : Overwrites::kMayCopy;
}

bool IsOfVolume(std::string_view name) { return name == "lost+found"; }

}  // namespace cairn::io
