// SPDX-License-Identifier: Apache-2.0
//
// Room that the log has for certain on a disk that copies on write: there a write may find the disk
// full though its blocks were allocated, since it goes to new ones. The cushion is files of written
// bytes that nothing compresses. When a write of the log is refused, a file is deleted, and the
// write is done again.
//
// Data is refused until the cushion is whole again, so it has room for all groups that were under
// way. If other programs take what was deleted before the write comes, that is like a disk that
// fails: the log is poisoned.
//
// Thread-safe, except Open and MakeWhole, which one thread at a time calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/volume.h"
#include "base/io/world.h"
#include "cairn/status.h"
#include "wal/constants.h"

namespace cairn::wal {

// Whether it is a file of a cushion, in the log's directory.
bool IsCushionFileName(std::string_view name);

class SpaceCushion {
 public:
  SpaceCushion(io::World world, std::string directory, uint64_t segment_bytes);

  // Before there is one for this opening: deletes a piece that an earlier opening left. False:
  // there is none, or it cannot be deleted.
  static bool GiveUpOne(io::FileSystem& files, const std::string& directory);

  // Looks at the volume. If that copies on write, takes over the matching files; removes all
  // others. Until then, and where nothing is copied, the cushion has no pieces and is whole.
  Status Open();
  // Makes what is missing. kNoSpace: some of it may exist.
  Status MakeWhole();
  // Deletes a piece. False: there is none left, or it cannot be deleted.
  bool GiveUpOne();

  bool whole() const { return left_.load(std::memory_order_acquire) == pieces_; }
  size_t left() const { return left_.load(std::memory_order_acquire); }
  size_t pieces() const { return pieces_; }
  uint64_t bytes() const { return pieces_ * piece_bytes_; }
  io::Overwrites overwrites() const { return overwrites_; }

 private:
  std::string PathOf(size_t piece) const;
  Status Make(size_t piece);

  const io::World world_;
  const std::string directory_;
  const uint64_t piece_bytes_;
  io::Overwrites overwrites_ = io::Overwrites::kInPlace;  // These two are set by Open.
  size_t pieces_ = 0;
  std::atomic<size_t> left_{0};
  Mutex mutex_;
  std::vector<bool> made_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::wal
