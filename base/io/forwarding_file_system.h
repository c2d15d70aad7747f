// SPDX-License-Identifier: Apache-2.0
//
// A file system in front of another: passes on every call that a derived class does not override.
// Except Hold: its result would bypass the one in front.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/world.h"

namespace cairn::io {

class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}
  FileSystem& inner() const { return *inner_; }

  std::string_view name() const override { return inner_->name(); }
  Result<bool> IsReplaced(const std::string& path) override { return inner_->IsReplaced(path); }
  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    return inner_->Open(path, options);
  }
  Result<FileInfo> Info(const std::string& path) override { return inner_->Info(path); }
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
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return inner_->Lock(path);
  }
  Result<bool> IsLocked(const std::string& path) override { return inner_->IsLocked(path); }
  Result<VolumeInfo> Volume(const std::string& path) override { return inner_->Volume(path); }
  Result<DiskSpace> Space(const std::string& path) override { return inner_->Space(path); }
  uint64_t OpenFilesMax() override { return inner_->OpenFilesMax(); }
  std::unique_ptr<Queue> NewQueue(size_t depth) override { return inner_->NewQueue(depth); }

 private:
  const std::shared_ptr<FileSystem> inner_;
};

}  // namespace cairn::io
