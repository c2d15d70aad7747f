// SPDX-License-Identifier: Apache-2.0
//
// What the kind of a volume says about the files on it.
#pragma once

#include <cstdint>
#include <string_view>

namespace cairn::io {

// Where a write goes to a block that a file has already.
enum class Overwrites : uint8_t {
  kInPlace,
  kMayCopy,  // Into a new block if another file shares the old one, as after `cp --reflink`.
  kCopy,     // Always into a new block: it fails when the disk is full.
};

// By the name of a file system (VolumeInfo). No probe says it better: to see an overwrite fail one
// would have to fill the disk. FIEMAP shows whether a block moved, but not on ZFS, and what it
// shows of one file changes with a snapshot, a reflink or a flag of another. Files without copy on
// write on btrfs (chattr +C) are taken for copied ones, which costs some room and nothing else.
// What lies below a network, FUSE or an overlay is not known, nor is an unknown file system: they
// may copy.
Overwrites OverwritesOn(std::string_view file_system);

// Whether a file system puts that name into the root of a new volume, which is as good as empty.
bool IsOfVolume(std::string_view name);

}  // namespace cairn::io
