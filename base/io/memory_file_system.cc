// SPDX-License-Identifier: Apache-2.0
#include "base/io/memory_file_system.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/core/check.h"
#include "base/core/mutex.h"
#include "base/io/cow_bytes.h"
#include "base/io/inline_queue.h"
#include "base/io/os_error.h"
#include "base/io/path.h"
#include "base/io/real_scheduler.h"

namespace cairn::io {

struct MemoryNode {
  explicit MemoryNode(bool directory) : is_directory(directory) {}

  const bool is_directory;
  std::atomic<bool> locked{false};
  SharedMutex mutex;
  CowBytes content CAIRN_GUARDED_BY(mutex);
};

namespace {

class MemoryFile final : public File {
 public:
  MemoryFile(std::string path, std::shared_ptr<MemoryNode> node, bool writable)
      : path_(std::move(path)), node_(std::move(node)), writable_(writable) {}

  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }

  Result<uint64_t> Size() override {
    ReaderLock lock(&node_->mutex);
    return node_->content.size();
  }

  Status Truncate(uint64_t bytes) override {
    if (!writable_) return OsError(EINVAL, "ftruncate", path_, 0, bytes);
    WriterLock lock(&node_->mutex);
    if (node_->content.Resize(bytes)) return {};
    return OsError(ENOMEM, "ftruncate", path_, 0, bytes);
  }

  Status Allocate(uint64_t, uint64_t end) override {
    if (!writable_) return OsError(EBADF, "fallocate", path_, 0, end);
    WriterLock lock(&node_->mutex);
    const uint64_t before = node_->content.size();
    if (node_->content.Allocate(end)) return {};
    (void)node_->content.Resize(before);
    return OsError(ENOMEM, "fallocate", path_, 0, end);
  }

  Status Read(uint64_t offset, std::span<std::byte> into) override {
    size_t transferred = 0;
    return ReadSome(offset, into, transferred);
  }

  Status ReadSome(uint64_t offset, std::span<std::byte> into, size_t& transferred) {
    ReaderLock lock(&node_->mutex);
    transferred = node_->content.Read(offset, into);
    if (transferred == into.size()) return {};
    return EndOfFile(path_, offset, into.size(), transferred);
  }

  Status Write(uint64_t offset, std::span<const std::byte> from, bool) override {
    if (!writable_) return OsError(EBADF, "pwrite", path_, offset, from.size());
    WriterLock lock(&node_->mutex);
    if (node_->content.Write(offset, from)) return {};
    return OsError(ENOMEM, "pwrite", path_, offset, from.size());
  }

  Status Sync() override { return {}; }

 private:
  const std::string path_;
  const std::shared_ptr<MemoryNode> node_;
  const bool writable_;
};

class MemoryLock final : public FileLock {
 public:
  MemoryLock(MemoryFileSystem* files, std::string path, std::shared_ptr<MemoryNode> node)
      : files_(files), path_(std::move(path)), node_(std::move(node)) {}
  ~MemoryLock() override { node_->locked = false; }
  Status Check() override { return files_->Leads(path_, *node_) ? Status() : LockIsLost(path_); }

 private:
  MemoryFileSystem* const files_;
  const std::string path_;
  const std::shared_ptr<MemoryNode> node_;
};

void RunInMemory(Request& request) {
  auto* file = static_cast<MemoryFile*>(request.file);
  switch (request.kind) {
    case Request::Kind::kRead:
      request.status =
          file->ReadSome(request.offset, {request.data, request.length}, request.transferred);
      break;
    case Request::Kind::kWrite:
    case Request::Kind::kDurableWrite:
      request.status = file->Write(request.offset, {request.data, request.length}, false);
      if (request.status.ok()) request.transferred = request.length;
      break;
    case Request::Kind::kSync: request.status = file->Sync(); break;
  }
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() { nodes_.emplace("", std::make_shared<MemoryNode>(true)); }

MemoryFileSystem::~MemoryFileSystem() = default;

MemoryNode* MemoryFileSystem::FindLocked(const std::string& normal) const {
  const auto found = nodes_.find(normal);
  return found == nodes_.end() ? nullptr : found->second.get();
}

// 0, or the errno for a name whose parent is missing or is no directory.
int MemoryFileSystem::CheckParentLocked(const std::string& normal) const {
  const MemoryNode* parent = FindLocked(NormalPath(ParentPath(normal)));
  if (parent == nullptr) return ENOENT;
  return parent->is_directory ? 0 : ENOTDIR;
}

bool MemoryFileSystem::HasChildrenLocked(const std::string& normal) const {
  const auto child = nodes_.lower_bound(normal + "/");
  return child != nodes_.end() && child->first.starts_with(normal + "/");
}

Result<std::unique_ptr<File>> MemoryFileSystem::Open(const std::string& path,
                                                     const OpenOptions& options) {
  const std::string normal = NormalPath(path);
  MutexLock lock(&mutex_);
  auto found = nodes_.find(normal);
  if (found == nodes_.end()) {
    if (!options.create) return OsError(ENOENT, "open", path);
    if (const int error = CheckParentLocked(normal); error != 0) {
      return OsError(error, "open", path);
    }
    found = nodes_.emplace(normal, std::make_shared<MemoryNode>(false)).first;
  } else if (options.create && options.exclusive) {
    return OsError(EEXIST, "open", path);
  }
  if (found->second->is_directory) return OsError(EISDIR, "open", path);
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(path, found->second, options.write));
}

Result<FileInfo> MemoryFileSystem::Info(const std::string& path) {
  MutexLock lock(&mutex_);
  MemoryNode* node = FindLocked(NormalPath(path));
  if (node == nullptr) return OsError(ENOENT, "stat", path);
  ReaderLock content_lock(&node->mutex);
  return FileInfo{.bytes = node->content.size(),
                  .allocated_bytes = node->content.allocated_bytes(),
                  .is_directory = node->is_directory};
}

Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  const std::string source = NormalPath(from), target = NormalPath(to);
  const auto fail = [&](int error) { return OsError(error, "rename", from + " to " + to); };
  MutexLock lock(&mutex_);
  const MemoryNode* moved = FindLocked(source);
  if (moved == nullptr) return fail(ENOENT);
  if (const int error = CheckParentLocked(target); error != 0) return fail(error);
  if (source == target || FindLocked(target) == moved) return {};
  if (target.starts_with(source + "/")) return fail(EINVAL);
  if (const MemoryNode* replaced = FindLocked(target); replaced != nullptr) {
    if (replaced->is_directory && !moved->is_directory) return fail(EISDIR);
    if (!replaced->is_directory && moved->is_directory) return fail(ENOTDIR);
    if (HasChildrenLocked(target)) return fail(ENOTEMPTY);
    nodes_.erase(target);
  }
  auto whole = nodes_.extract(source);
  whole.key() = target;
  nodes_.insert(std::move(whole));
  for (;;) {
    const auto child = nodes_.lower_bound(source + "/");
    if (child == nodes_.end() || !child->first.starts_with(source + "/")) return {};
    auto part = nodes_.extract(child);
    part.key().replace(0, source.size(), target);
    nodes_.insert(std::move(part));
  }
}

Result<bool> MemoryFileSystem::Link(const std::string& from, const std::string& to) {
  const std::string source = NormalPath(from), target = NormalPath(to);
  const auto fail = [&](int error) { return OsError(error, "link", from + " to " + to); };
  MutexLock lock(&mutex_);
  const auto found = nodes_.find(source);
  if (found == nodes_.end()) return fail(ENOENT);
  if (const int error = CheckParentLocked(target); error != 0) return fail(error);
  if (FindLocked(target) != nullptr) return fail(EEXIST);
  if (found->second->is_directory) return fail(EPERM);
  nodes_.emplace(target, found->second);
  return true;
}

Status MemoryFileSystem::Remove(const std::string& path) {
  const std::string normal = NormalPath(path);
  MutexLock lock(&mutex_);
  if (FindLocked(normal) == nullptr) return OsError(ENOENT, "unlink", path);
  if (normal.empty()) return OsError(EBUSY, "rmdir", path);
  if (HasChildrenLocked(normal)) return OsError(ENOTEMPTY, "rmdir", path);
  nodes_.erase(normal);
  return {};
}

Status MemoryFileSystem::CreateDirectory(const std::string& path) {
  const std::string normal = NormalPath(path);
  MutexLock lock(&mutex_);
  if (FindLocked(normal) != nullptr) return OsError(EEXIST, "mkdir", path);
  if (const int error = CheckParentLocked(normal); error != 0) return OsError(error, "mkdir", path);
  nodes_.emplace(normal, std::make_shared<MemoryNode>(true));
  return {};
}

Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  MutexLock lock(&mutex_);
  const MemoryNode* node = FindLocked(NormalPath(path));
  if (node == nullptr) return OsError(ENOENT, "open", path);
  return node->is_directory ? Status() : OsError(ENOTDIR, "open", path);
}

Result<std::vector<std::string>> MemoryFileSystem::List(const std::string& path) {
  const std::string normal = NormalPath(path);
  const std::string prefix = normal.empty() ? "" : normal + "/";
  MutexLock lock(&mutex_);
  const MemoryNode* node = FindLocked(normal);
  if (node == nullptr) return OsError(ENOENT, "opendir", path);
  if (!node->is_directory) return OsError(ENOTDIR, "opendir", path);
  std::vector<std::string> names;
  for (auto it = nodes_.lower_bound(prefix); it != nodes_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    std::string name = it->first.substr(prefix.size());
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::unique_ptr<FileLock>> MemoryFileSystem::Lock(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(Open(path, {.write = true, .create = true}).status());
  std::shared_ptr<MemoryNode> node;
  {
    MutexLock lock(&mutex_);
    const auto found = nodes_.find(NormalPath(path));
    if (found == nodes_.end()) return OsError(ENOENT, "open", path);
    node = found->second;
  }
  if (node->locked.exchange(true)) return LockedElsewhere(path, getpid());
  return std::unique_ptr<FileLock>(std::make_unique<MemoryLock>(this, path, std::move(node)));
}

bool MemoryFileSystem::Leads(const std::string& path, const MemoryNode& node) const {
  MutexLock lock(&mutex_);
  return FindLocked(NormalPath(path)) == &node;
}

Result<bool> MemoryFileSystem::IsLocked(const std::string& path) {
  MutexLock lock(&mutex_);
  const auto found = nodes_.find(NormalPath(path));
  return found != nodes_.end() && found->second->locked.load();
}

Result<VolumeInfo> MemoryFileSystem::Volume(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(Info(path).status());
  return VolumeInfo{.file_system = "memory", .durable = false, .direct_io = false};
}

// Memory that is not free is mostly caches, and can be had.
Result<DiskSpace> MemoryFileSystem::Space(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(Info(path).status());
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) return OsError(errno, "sysinfo", path);
  const uint64_t bytes = uint64_t{machine.totalram} * machine.mem_unit;
  return DiskSpace{.total_bytes = bytes, .free_bytes = bytes};
}

std::unique_ptr<Queue> MemoryFileSystem::NewQueue(size_t depth) {
  return std::make_unique<InlineQueue>(depth, RunInMemory);
}

World MakeMemoryWorld() {
  return {.files = std::make_shared<MemoryFileSystem>(),
          .scheduler = std::make_shared<RealScheduler>()};
}

}  // namespace cairn::io
