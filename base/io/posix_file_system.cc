// SPDX-License-Identifier: Apache-2.0
#include "base/io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/core/check.h"
#include "base/io/os_error.h"
#include "base/io/posix_file.h"
#include "base/io/unique_fd.h"

namespace cairn::io {
namespace {

// From statfs(2) and linux/magic.h; the newest are not in Debian 12's headers.
struct KnownFileSystem {
  uint32_t magic;
  const char* name;
  bool durable;
};
constexpr KnownFileSystem kKnownFileSystems[] = {
    {0x0000ef53, "ext4", true},      {0x58465342, "xfs", true},    {0x9123683e, "btrfs", true},
    {0x2fc12fc1, "zfs", true},       {0xf2f52010, "f2fs", true},   {0xca451a4e, "bcachefs", true},
    {0x794c7630, "overlayfs", true}, {0x65735546, "fuse", true},   {0x00006969, "nfs", true},
    {0xff534d42, "cifs", true},      {0xfe534d42, "smb2", true},   {0x00c36400, "ceph", true},
    {0x01021997, "9p", true},        {0x00004d44, "vfat", true},   {0x2011bab0, "exfat", true},
    {0x01021994, "tmpfs", false},    {0x858458f6, "ramfs", false},
};

class PosixLock final : public FileLock {
 public:
  explicit PosixLock(UniqueFd fd) : fd_(std::move(fd)), owner_(getpid()) {}
  // The lock belongs to the open file, which a forked child shares. Unlocking there would take it
  // from the parent; not unlocking here would leave it with the child.
  ~PosixLock() override {
    if (getpid() == owner_) flock(fd_.get(), LOCK_UN);
  }

 private:
  const UniqueFd fd_;
  const pid_t owner_;
};

// Asks with a file that never has a name, or with the file itself. No answer (a read-only volume):
// false.
bool AcceptsDirectIo(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid() && errno == ENOTDIR) fd = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && fcntl(fd.get(), F_SETFL, O_DIRECT) == 0;
}

}  // namespace

Result<std::unique_ptr<File>> PosixFileSystem::Open(const std::string& path,
                                                    const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<File> file, PosixFile::Open(path, options));
  return file;
}

Result<FileInfo> PosixFileSystem::Info(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return OsError(errno, "stat", path);
  return FileInfo{.bytes = static_cast<uint64_t>(status.st_size),
                  .allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512,
                  .is_directory = S_ISDIR(status.st_mode)};
}

Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return {};
  return OsError(errno, "rename", from + " to " + to);
}

Result<bool> PosixFileSystem::Link(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return true;
  // What Link refuses is found before the file systems are asked, save that linking a directory is
  // EPERM, as is a file system without hard links.
  struct stat status;
  const int error = errno;
  if (LinkIsRefused(error) && stat(from.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    return false;
  }
  return OsError(error, "link", from + " to " + to);
}

Status PosixFileSystem::Remove(const std::string& path) {
  if (unlink(path.c_str()) == 0) return {};
  if (errno != EISDIR) return OsError(errno, "unlink", path);
  if (rmdir(path.c_str()) == 0) return {};
  return OsError(errno, "rmdir", path);
}

Status PosixFileSystem::CreateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) == 0) return {};
  return OsError(errno, "mkdir", path);
}

Status PosixFileSystem::SyncDirectory(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return OsError(errno, "open", path);
  // EINVAL: a file system (some on FUSE, CIFS) that has no such call; nothing more can be done.
  if (fsync(fd.get()) == 0 || errno == EINVAL) return {};
  return OsError(errno, "fsync", path);
}

Result<std::vector<std::string>> PosixFileSystem::List(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return OsError(errno, "opendir", path);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return OsError(errno, "readdir", path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::unique_ptr<FileLock>> PosixFileSystem::Lock(const std::string& path) {
  constexpr int kAttempts = 6;  // With a pause after each but the last: a quarter of a second.
  constexpr timespec kPause{0, 50'000'000};
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return OsError(errno, "open", path);
  for (int attempt = 1;; ++attempt) {
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      return std::unique_ptr<FileLock>(std::make_unique<PosixLock>(std::move(fd)));
    }
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return OsError(errno, "flock", path);
    if (attempt >= kAttempts) return LockedElsewhere(path);
    nanosleep(&kPause, nullptr);
  }
}

// A shared lock is had only while nobody has the lock; it goes with the descriptor.
Result<bool> PosixFileSystem::IsLocked(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return false;
  if (!fd.valid()) return OsError(errno, "open", path);
  while (flock(fd.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return true;
    if (errno != EINTR) return OsError(errno, "flock", path);
  }
  return false;
}

Result<VolumeInfo> PosixFileSystem::Volume(const std::string& path) {
  struct statfs status;
  if (statfs(path.c_str(), &status) != 0) return OsError(errno, "statfs", path);
  const auto magic = static_cast<uint32_t>(status.f_type);
  VolumeInfo info;
  const auto known = std::find_if(std::begin(kKnownFileSystems), std::end(kKnownFileSystems),
                                  [&](const KnownFileSystem& k) { return k.magic == magic; });
  if (known != std::end(kKnownFileSystems)) {
    info.file_system = known->name;
    info.durable = known->durable;
  } else {
    char text[16];
    std::snprintf(text, sizeof(text), "0x%08x", magic);
    info.file_system = text;
  }
  info.direct_io = AcceptsDirectIo(path);
  return info;
}

uint64_t PosixFileSystem::OpenFilesMax() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

Result<DiskSpace> PosixFileSystem::Space(const std::string& path) {
  struct statfs status;
  if (statfs(path.c_str(), &status) != 0) return OsError(errno, "statfs", path);
  const auto block_bytes = static_cast<uint64_t>(status.f_bsize);
  return DiskSpace{.total_bytes = status.f_blocks * block_bytes,
                   .free_bytes = status.f_bavail * block_bytes};
}

}  // namespace cairn::io
