// SPDX-License-Identifier: Apache-2.0
//
// The files of a store as a follower opens them: each is believed only when it was asked, behind
// its opening, whose they are. Files that are open stay what they are, whatever is put in their
// place; names do not.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/io/world.h"

namespace cairn::engine {

class FollowedFiles final : public io::FileSystem {
 public:
  explicit FollowedFiles(std::shared_ptr<io::FileSystem> inner) : inner_(std::move(inner)) {}
  // Called behind every opening of a file below `directory`, which it may refuse.
  void Confirm(const std::string& directory, std::function<Status()> confirm);
  io::FileSystem& inner() const { return *inner_; }

  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<io::File>> Open(const std::string& path,
                                         const io::OpenOptions& options) override;
  Result<io::FileInfo> Info(const std::string& path) override { return inner_->Info(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return inner_->Rename(from, to);
  }
  Result<bool> Link(const std::string& from, const std::string& to) override {
    return inner_->Link(from, to);
  }
  Status Remove(const std::string& path) override { return inner_->Remove(path); }
  Status CreateDirectory(const std::string& path) override { return inner_->CreateDirectory(path); }
  Status SyncDirectory(const std::string& path) override { return inner_->SyncDirectory(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return inner_->List(path);
  }
  Result<std::unique_ptr<io::FileLock>> Lock(const std::string& path) override {
    return inner_->Lock(path);
  }
  Result<bool> IsLocked(const std::string& path) override { return inner_->IsLocked(path); }
  Result<io::VolumeInfo> Volume(const std::string& path) override { return inner_->Volume(path); }
  Result<io::DiskSpace> Space(const std::string& path) override { return inner_->Space(path); }
  std::unique_ptr<io::Queue> NewQueue(size_t depth) override { return inner_->NewQueue(depth); }

 private:
  const std::shared_ptr<io::FileSystem> inner_;
  std::string directory_;
  std::function<Status()> confirm_;
};

}  // namespace cairn::engine
