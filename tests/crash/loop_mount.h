// SPDX-License-Identifier: Apache-2.0
//
// A file system of its own, on a file behind a loop device, or tmpfs: made, mounted, filled, shut
// down as if the machine had lost its power, and mounted again. Needs the right to mount.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/test_store.h"

namespace cairn::crash {

class LoopMount {
 public:
  // `type`: ext4, xfs, btrfs or tmpfs. kInvalidState with the reason where this may not be done.
  static Result<LoopMount> Make(const std::string& type, uint64_t bytes);
  LoopMount(LoopMount&& other) noexcept;
  LoopMount& operator=(LoopMount&&) = delete;
  ~LoopMount();  // Nothing may be open there any more.

  const std::string& path() const { return path_; }
  // Takes all room that is left, in a file "hog".
  Status Fill();
  Status Empty();  // Removes it.
  Status Mount(const std::string& options = "rw");
  Status Remount(const std::string& options);
  Status Unmount();
  // Loses everything that was not made durable; everything fails from here on until it was
  // unmounted and mounted again.
  Status LosePower();
  // The file system finds an error in itself and goes read-only; ext4, mounted with
  // errors=remount-ro.
  Status FindAnError();

 private:
  LoopMount(std::string type, uint64_t bytes)
      : type_(std::move(type)),
        bytes_(bytes),
        scratch_(std::make_unique<testing::TempDirectory>()),
        path_(scratch_->path() + "/mnt") {}
  std::string image() const { return scratch_->path() + "/image"; }

  const std::string type_;
  const uint64_t bytes_;
  std::unique_ptr<testing::TempDirectory> scratch_;
  const std::string path_;
  bool mounted_ = false;
};

}  // namespace cairn::crash
