// SPDX-License-Identifier: Apache-2.0
#include "sim/disk.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/codec/hash.h"
#include "base/core/align.h"
#include "base/core/check.h"
#include "base/io/os_error.h"
#include "base/io/path.h"
#include "sim/file.h"

namespace cairn::io {
namespace {

class SimLock final : public FileLock {
 public:
  SimLock(const SimDisk* disk, std::string path, std::shared_ptr<SimInode> inode)
      : disk_(disk), path_(std::move(path)), inode_(std::move(inode)) {}
  ~SimLock() override { inode_->locked = false; }
  Status Check() override { return disk_->Leads(path_, *inode_) ? Status() : LockIsLost(path_); }

 private:
  const SimDisk* const disk_;
  const std::string path_;
  const std::shared_ptr<SimInode> inode_;
};

SimEntries& CurrentNames(SimInode& directory) { return directory.entries; }

void ListFiles(const SimInode& directory, const std::string& prefix,
               std::vector<std::string>& files) {
  for (const auto& [name, inode] : directory.entries) {
    if (inode->is_directory) {
      ListFiles(*inode, prefix + name + "/", files);
    } else {
      files.push_back(prefix + name);
    }
  }
}

}  // namespace

const char* SimOpName(SimOp op) {
  switch (op) {
    case SimOp::kOpen: return "open";
    case SimOp::kStat: return "stat";
    case SimOp::kList: return "list";
    case SimOp::kRead: return "read";
    case SimOp::kWrite: return "write";
    case SimOp::kDurableWrite: return "durable_write";
    case SimOp::kSync: return "sync";
    case SimOp::kTruncate: return "truncate";
    case SimOp::kAllocate: return "allocate";
    case SimOp::kCreate: return "create";
    case SimOp::kRename: return "rename";
    case SimOp::kLink: return "link";
    case SimOp::kRemove: return "remove";
    case SimOp::kCreateDirectory: return "create_directory";
    case SimOp::kSyncDirectory: return "sync_directory";
  }
  return "?";
}

std::string SimOperation::ToString() const {
  return std::string(SimOpName(op)) + " " + path + " offset " + std::to_string(offset) +
         " length " + std::to_string(length);
}

SimDisk::SimDisk(SimDiskOptions options, SimScheduler* scheduler)
    : options_(options), scheduler_(scheduler), random_(options.seed), root_(NewInode(true)) {}

SimDisk::~SimDisk() = default;

std::optional<SimFault> SimDisk::Announce(SimOp op, const std::string& path, uint64_t offset,
                                          uint64_t length, std::span<const std::byte> bytes) {
  const SimOperation operation{next_index_, op, path, offset, length};
  if (operation.changes_world()) {
    ++next_index_;
    if (hook_) hook_(operation);
  }
  if (tracing_) {
    char text[96];
    std::snprintf(text, sizeof(text), " hash %016llx at %llu ns as operation %llu",
                  static_cast<unsigned long long>(Hash(bytes)),
                  static_cast<unsigned long long>(scheduler_ ? scheduler_->MonotonicNs() : 0),
                  static_cast<unsigned long long>(operation.index));
    trace_.push_back(operation.ToString() + text);
  }
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    const bool due =
        fault->persistent ? operation.index >= fault->at_index : operation.index == fault->at_index;
    if (fault->when ? !fault->when(operation) : !(operation.changes_world() && due)) continue;
    SimFault strikes = *fault;
    if (!fault->persistent) faults_.erase(fault);
    ++faults_struck_;
    if (strikes.delay_ns != 0) {
      delay_ns_ = strikes.delay_ns;
      return std::nullopt;
    }
    return strikes;
  }
  return std::nullopt;
}

int SimDisk::AnnounceWhole(SimOp op, const std::string& path, uint64_t length) {
  constexpr int kAttempts = 100;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto fault = Announce(op, path, 0, length, {});
    error = fault ? fault->error : 0;
    if (error != 0) TraceOutcome(error);
    if (error != EINTR && error != EAGAIN) break;
  }
  return error;
}

// Queries take no time of their own, but may be slow or stuck.
int SimDisk::AnnounceLook(SimOp op, const std::string& path) {
  const int error = AnnounceWhole(op, path);
  const uint64_t delay_ns = std::exchange(delay_ns_, 0);
  if (scheduler_ != nullptr && delay_ns != 0) scheduler_->Sleep(delay_ns);
  return error;
}

void SimDisk::TraceOutcome(int error, uint64_t transferred) {
  if (!tracing_) return;
  trace_.back() += ": " + (error != 0 ? DescribeErrno(error) : std::to_string(transferred));
}

uint64_t SimDisk::Draw(const SimLatency& latency) {
  const uint64_t drawn = latency.min_ns + random_.Below(latency.max_ns - latency.min_ns + 1);
  return drawn + std::exchange(delay_ns_, 0);
}

void SimDisk::Delay(const SimLatency& latency) {
  if (scheduler_ != nullptr) scheduler_->Sleep(Draw(latency));
}

uint64_t SimDisk::NewBytes(const SimInode& inode, uint64_t offset, uint64_t length) const {
  if (!options_.copies_on_write) return inode.content.MissingBytes(offset, length);
  if (length == 0) return 0;
  return AlignUp(offset + length, kBlockBytes) - offset / kBlockBytes * kBlockBytes;
}

bool SimDisk::HasRoom(uint64_t new_bytes) {
  const auto fits = [&] { return *used_bytes_ + new_bytes <= options_.capacity_bytes; };
  if (options_.capacity_bytes == UINT64_MAX || fits()) return true;
  if (!drop_syncs_) CommitNames(*root_);
  return fits();
}

void SimDisk::CommitNames(SimInode& directory) {
  for (SimEntryChange& change : directory.entry_changes) change.durable = true;
  directory.SettleEntryChanges();
  for (const auto& [name, inode] : directory.entries) {
    if (inode->is_directory) CommitNames(*inode);
  }
}

std::shared_ptr<SimInode> SimDisk::NewInode(bool directory) {
  return std::make_shared<SimInode>(next_inode_++, directory, used_bytes_);
}

// The current content has the change already.
void SimDisk::ApplyAndRecord(SimInode& inode, SimChange change, Pending* pending) {
  change.id = ++next_change_;
  if (pending != nullptr) {
    pending->change_ids.push_back(change.id);
  } else {
    change.state = SimChange::State::kCompleted;
    change.completed_at = ++completions_;
  }
  inode.changes.push_back(std::move(change));
}

Status SimDisk::Resize(const std::string& path, SimInode& inode, SimOp op, uint64_t bytes) {
  int error = AnnounceWhole(op, path, bytes);
  const bool allocates = op == SimOp::kAllocate;
  if (error == 0 && allocates && !HasRoom(inode.content.MissingBytes(0, bytes)))
    TraceOutcome(error = ENOSPC);
  if (error != 0) return OsError(error, SimOpName(op), path, 0, bytes);
  CAIRN_CHECK(inode.Update([&](CowBytes& content) {
    return allocates ? content.Allocate(bytes) : content.Resize(bytes);
  }));
  SimChange change;
  change.kind = allocates ? SimChange::Kind::kAllocate : SimChange::Kind::kTruncate;
  change.bytes = bytes;
  ApplyAndRecord(inode, std::move(change), nullptr);
  Delay(options_.metadata);
  return {};
}

std::shared_ptr<SimInode> SimDisk::Find(const std::string& path) const {
  std::shared_ptr<SimInode> inode = root_;
  const std::string normal = NormalPath(path);
  for (size_t start = 0; start < normal.size();) {
    const size_t end = std::min(normal.find('/', start), normal.size());
    const auto found = inode->entries.find(normal.substr(start, end - start));
    if (found == inode->entries.end()) return nullptr;
    inode = found->second;
    start = end + 1;
  }
  return inode;
}

std::shared_ptr<SimInode> SimDisk::FindParent(const std::string& path, int& error) const {
  std::shared_ptr<SimInode> parent = Find(ParentPath(NormalPath(path)));
  error = parent == nullptr ? ENOENT : parent->is_directory ? 0 : ENOTDIR;
  return error == 0 ? parent : nullptr;
}

void SimDisk::ChangeEntries(const std::shared_ptr<SimInode>& directory, SimEntryChange change) {
  change.id = ++next_change_;
  ApplyEntryChange(change, *directory, CurrentNames);
  directory->entry_changes.push_back(std::move(change));
}

Result<std::unique_ptr<File>> SimDisk::Open(const std::string& path, const OpenOptions& options) {
  std::shared_ptr<SimInode> inode = Find(path);
  if (inode == nullptr) {
    int error = ENOENT;
    const auto parent = options.create ? FindParent(path, error) : nullptr;
    if (error == 0) error = AnnounceWhole(SimOp::kCreate, path);
    if (error != 0) return OsError(error, "open", path);
    inode = NewInode(false);
    SimEntryChange change;
    change.added = inode;
    change.added_name = BaseName(NormalPath(path));
    ChangeEntries(parent, std::move(change));
  } else {
    int error = options.create && options.exclusive ? EEXIST : inode->is_directory ? EISDIR : 0;
    if (error == 0) error = AnnounceWhole(SimOp::kOpen, path);
    if (error != 0) return OsError(error, "open", path);
  }
  Delay(options_.metadata);
  return std::unique_ptr<File>(std::make_unique<SimFile>(this, path, std::move(inode), options));
}

Result<FileInfo> SimDisk::Info(const std::string& path) {
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "stat", path);
  if (const int error = AnnounceLook(SimOp::kStat, path)) return OsError(error, "stat", path);
  return FileInfo{.bytes = inode->content.size(),
                  .allocated_bytes = inode->content.allocated_bytes(),
                  .is_directory = inode->is_directory};
}

Status SimDisk::Rename(const std::string& from, const std::string& to) {
  const auto fail = [&](int error) { return OsError(error, "rename", from + " to " + to); };
  const std::string source = NormalPath(from), target = NormalPath(to);
  int error = 0;
  const auto moved = Find(source);
  if (moved == nullptr) return fail(ENOENT);
  const auto target_parent = FindParent(target, error);
  if (error != 0) return fail(error);
  if (source == target) return {};
  if (source.empty() || target.starts_with(source + "/")) return fail(EINVAL);
  if (const auto replaced = Find(target); replaced != nullptr) {
    if (replaced->is_directory && !moved->is_directory) return fail(EISDIR);
    if (!replaced->is_directory && moved->is_directory) return fail(ENOTDIR);
    if (!replaced->entries.empty()) return fail(ENOTEMPTY);
    if (replaced == moved) return {};  // Two names of one file: POSIX keeps both.
  }
  error = AnnounceWhole(SimOp::kRename, from + " to " + to);
  if (error != 0) return fail(error);
  SimEntryChange change;
  change.removed_from = FindParent(source, error);
  change.removed = moved;
  change.removed_name = BaseName(source);
  change.added = moved;
  change.added_name = BaseName(target);
  ChangeEntries(target_parent, std::move(change));
  Delay(options_.metadata);
  return {};
}

Result<bool> SimDisk::Link(const std::string& from, const std::string& to) {
  const auto fail = [&](int error) { return OsError(error, "link", from + " to " + to); };
  int error = 0;
  const auto linked = Find(from);
  if (linked == nullptr) return fail(ENOENT);
  const auto parent = FindParent(to, error);
  if (error != 0) return fail(error);
  if (Find(to) != nullptr) return fail(EEXIST);
  if (linked->is_directory) return fail(EPERM);
  error = AnnounceWhole(SimOp::kLink, from + " to " + to);
  if (LinkIsRefused(error)) return false;
  if (error != 0) return fail(error);
  SimEntryChange change;
  change.added = linked;
  change.added_name = BaseName(NormalPath(to));
  ChangeEntries(parent, std::move(change));
  Delay(options_.metadata);
  return true;
}

Status SimDisk::Remove(const std::string& path) {
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "unlink", path);
  if (inode == root_) return OsError(EBUSY, "rmdir", path);
  if (!inode->entries.empty()) return OsError(ENOTEMPTY, "rmdir", path);
  int error = AnnounceWhole(SimOp::kRemove, path);
  if (error != 0) return OsError(error, "unlink", path);
  const auto parent = FindParent(path, error);
  SimEntryChange change;
  change.removed_from = parent;
  change.removed = inode;
  change.removed_name = BaseName(NormalPath(path));
  ChangeEntries(parent, std::move(change));
  Delay(options_.metadata);
  return {};
}

Status SimDisk::CreateDirectory(const std::string& path) {
  if (Find(path) != nullptr) return OsError(EEXIST, "mkdir", path);
  int error = 0;
  const auto parent = FindParent(path, error);
  if (error == 0) error = AnnounceWhole(SimOp::kCreateDirectory, path);
  if (error != 0) return OsError(error, "mkdir", path);
  SimEntryChange change;
  change.added = NewInode(true);
  change.added_name = BaseName(NormalPath(path));
  ChangeEntries(parent, std::move(change));
  Delay(options_.metadata);
  return {};
}

Status SimDisk::SyncDirectory(const std::string& path) {
  const auto directory = Find(path);
  if (directory == nullptr) return OsError(ENOENT, "open", path);
  if (!directory->is_directory) return OsError(ENOTDIR, "open", path);
  const int error = AnnounceWhole(SimOp::kSyncDirectory, path);
  if (error != 0) return OsError(error, "fsync", path);
  const uint64_t covered = next_change_;
  Delay(options_.durable);
  if (drop_syncs_) return {};
  for (SimEntryChange& change : directory->entry_changes) {
    if (change.id <= covered) change.durable = true;
  }
  directory->SettleEntryChanges();
  return {};
}

Result<std::vector<std::string>> SimDisk::List(const std::string& path) {
  const auto directory = Find(path);
  if (directory == nullptr) return OsError(ENOENT, "opendir", path);
  if (!directory->is_directory) return OsError(ENOTDIR, "opendir", path);
  if (const int error = AnnounceLook(SimOp::kList, path)) return OsError(error, "opendir", path);
  std::vector<std::string> names;
  for (const auto& [name, inode] : directory->entries) names.push_back(name);
  return names;
}

Result<std::unique_ptr<FileLock>> SimDisk::Lock(const std::string& path) {
  CAIRN_RETURN_IF_ERROR(Open(path, {.write = true, .create = true}).status());
  auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "open", path);
  if (inode->locked) return LockedElsewhere(path, getpid());
  inode->locked = true;
  return std::unique_ptr<FileLock>(std::make_unique<SimLock>(this, path, std::move(inode)));
}

bool SimDisk::Leads(const std::string& path, const SimInode& inode) const {
  return Find(path).get() == &inode;
}

Result<bool> SimDisk::IsLocked(const std::string& path) {
  const auto inode = Find(path);
  return inode != nullptr && inode->locked;
}

Result<VolumeInfo> SimDisk::Volume(const std::string& path) {
  if (Find(path) == nullptr) return OsError(ENOENT, "statfs", path);
  if (const int error = AnnounceLook(SimOp::kStat, path)) return OsError(error, "statfs", path);
  return VolumeInfo{.file_system = options_.copies_on_write ? "simulated, copying" : "simulated",
                    .durable = true,
                    .direct_io = true};
}

Result<DiskSpace> SimDisk::Space(const std::string& path) {
  if (Find(path) == nullptr) return OsError(ENOENT, "statfs", path);
  if (const int error = AnnounceLook(SimOp::kStat, path)) return OsError(error, "statfs", path);
  const uint64_t total = std::min(options_.capacity_bytes, uint64_t{1} << 40);
  return DiskSpace{.total_bytes = total, .free_bytes = total - std::min(total, *used_bytes_)};
}

std::unique_ptr<Queue> SimDisk::NewQueue(size_t depth) {
  return std::make_unique<SimQueue>(this, depth);
}

Status SimDisk::FlipBit(const std::string& path, uint64_t offset, unsigned bit) {
  CAIRN_CHECK(bit < 8);
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "flip", path);
  std::byte byte{};
  if (inode->content.Read(offset, {&byte, 1}) != 1) return EndOfFile(path, offset, 1, 0);
  byte ^= std::byte{1} << bit;
  return WriteRaw(path, offset, {&byte, 1});
}

Status SimDisk::WriteRaw(const std::string& path, uint64_t offset,
                         std::span<const std::byte> bytes) {
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "write", path);
  CAIRN_CHECK(inode->Update([&](CowBytes& content) { return content.Write(offset, bytes); }));
  CAIRN_CHECK(inode->durable_content.Write(offset, bytes));
  return {};
}

Status SimDisk::TruncateRaw(const std::string& path, uint64_t bytes) {
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "truncate", path);
  CAIRN_CHECK(inode->Update([&](CowBytes& content) { return content.Resize(bytes); }));
  CAIRN_CHECK(inode->durable_content.Resize(bytes));
  return {};
}

Result<std::vector<std::byte>> SimDisk::ReadRaw(const std::string& path, uint64_t offset,
                                                uint64_t bytes) const {
  const auto inode = Find(path);
  if (inode == nullptr) return OsError(ENOENT, "read", path);
  const uint64_t size = inode->content.size();
  std::vector<std::byte> found(offset < size ? std::min(bytes, size - offset) : 0);
  CAIRN_CHECK(inode->content.Read(offset, found) == found.size());
  return found;
}

std::vector<std::string> SimDisk::Files() const {
  std::vector<std::string> files;
  ListFiles(*root_, "", files);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace cairn::io
