// SPDX-License-Identifier: Apache-2.0
//
// Files and directories of the operating system. base/io/real_world.cc chooses the backend of
// queued requests.
//
// Paths below a held directory are looked up from there (held_directory.h).
#pragma once

#include <sys/vfs.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/held_directory.h"
#include "base/io/posix_file.h"
#include "base/io/unique_fd.h"
#include "base/io/world.h"

namespace cairn::io {

class PosixFileSystem final : public FileSystem {
 public:
  using QueueFactory = std::function<std::unique_ptr<Queue>(size_t depth)>;

  PosixFileSystem(std::string_view name, QueueFactory new_queue, uint32_t file_mode)
      : name_(name), new_queue_(std::move(new_queue)), file_mode_(file_mode) {}

  std::string_view name() const override { return name_; }
  Result<std::shared_ptr<FileSystem>> Hold(const std::string& path) override;
  Result<bool> IsReplaced(const std::string& path) override;
  Result<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override;
  Result<FileInfo> Info(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Result<bool> Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status CreateDirectory(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;
  Result<bool> IsLocked(const std::string& path) override;
  Result<VolumeInfo> Volume(const std::string& path) override;
  Result<DiskSpace> Space(const std::string& path) override;
  uint64_t OpenFilesMax() override;
  std::unique_ptr<Queue> NewQueue(size_t depth) override { return new_queue_(depth); }

 private:
  // The path of a held directory may stand for the directory itself, or for its name.
  enum class Of : uint8_t { kContent, kName };
  Result<PosixPlace> PlaceOf(const std::string& path, Of of = Of::kContent) const;
  Result<PosixPlace> CheckedPlaceOf(const std::string& path, Of of = Of::kContent) const;
  const HeldDirectory* HolderOf(std::string_view path) const;
  Result<struct statfs> VolumeOf(const std::string& path) const;

  const std::string_view name_;
  const QueueFactory new_queue_;
  const uint32_t file_mode_;
  std::vector<std::shared_ptr<const HeldDirectory>> held_;
};

}  // namespace cairn::io
