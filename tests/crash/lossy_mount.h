// SPDX-License-Identifier: Apache-2.0
//
// A file system in the memory of a process of its own, mounted through FUSE, that keeps after a
// power cut what was synced and nothing else: of a file what fsync, fdatasync or a write with
// O_DSYNC covered, of a directory the names that it had when it was synced.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "tests/support/test_store.h"

namespace cairn::crash {

class LossyMount {
 public:
  // kInvalidState with the reason where this may not be done.
  static Result<LossyMount> Make();
  LossyMount(LossyMount&& other) noexcept;
  LossyMount& operator=(LossyMount&&) = delete;
  ~LossyMount();

  const std::string& path() const { return directory_->path(); }
  // From here on every call fails with EIO.
  void CutPower();
  // REQUIRES: every process that had a file open there has ended.
  void PowerOn();

 private:
  LossyMount(std::unique_ptr<testing::TempDirectory> directory, pid_t daemon)
      : directory_(std::move(directory)), daemon_(daemon) {}

  std::unique_ptr<testing::TempDirectory> directory_;  // Null: moved from.
  pid_t daemon_;
};

}  // namespace cairn::crash
