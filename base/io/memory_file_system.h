// SPDX-License-Identifier: Apache-2.0
//
// A file system in memory, for ":memory:" stores and quick tests. Nothing on it is durable; syncs
// succeed at once. Queues execute a request inside Submit.
//
// The root is any path: "/", "" and "." name it. Parents must exist, as on a real disk.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/world.h"

namespace cairn::io {

struct MemoryNode;

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  std::string_view name() const override { return "memory"; }
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
  uint64_t OpenFilesMax() override { return UINT64_MAX; }
  std::unique_ptr<Queue> NewQueue(size_t depth) override;
  bool Leads(const std::string& path, const MemoryNode& node) const;  // `path` to that node.

 private:
  MemoryNode* FindLocked(const std::string& normal) const CAIRN_REQUIRES(mutex_);
  int CheckParentLocked(const std::string& normal) const CAIRN_REQUIRES(mutex_);
  bool HasChildrenLocked(const std::string& normal) const CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_;
  // By normal path (base/io/path.h). A directory's children follow it, each as "directory/name".
  std::map<std::string, std::shared_ptr<MemoryNode>> nodes_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::io
