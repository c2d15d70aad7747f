// SPDX-License-Identifier: Apache-2.0
#include "base/io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/core/check.h"
#include "base/io/os_error.h"
#include "base/io/path.h"
#include "base/io/posix_lock.h"

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

// Tests with a file that never has a name, or with the file itself. No answer (a read-only volume):
// false.
bool AcceptsDirectIo(const PosixPlace& place) {
  const auto open_it = [&](int flags) {
    return UniqueFd(openat(place.directory, place.name.c_str(),
                           flags | O_CLOEXEC | O_NONBLOCK | place.no_follow(), 0600));
  };
  UniqueFd fd = open_it(O_TMPFILE | O_RDWR);
  if (!fd.valid() && errno == ENOTDIR) fd = open_it(O_RDONLY);
  return fd.valid() && fcntl(fd.get(), F_SETFL, O_DIRECT) == 0;
}

// Whether it has a part "..", which means names, and not what is held.
bool LeadsUp(std::string_view path) {
  return path == ".." || path.starts_with("../") || path.ends_with("/..") ||
         path.find("/../") != std::string_view::npos;
}

Status SyncNow(int fd, const std::string& path) {
  // EINVAL: a file system (some on FUSE, CIFS) without such a call; nothing more can be done.
  if (RetryInterrupted([&] { return fsync(fd); }) == 0 || errno == EINVAL) return {};
  // EBADF: the handle of a held directory that may not be read.
  return OsError(errno == EBADF ? EACCES : errno, "fsync", path);
}

}  // namespace

// ---------------------------------------------------------------- looking up paths

Result<std::shared_ptr<FileSystem>> PosixFileSystem::Hold(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace directory, PlaceOf(path));
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace parent, PlaceOf(ParentPath(path)));
  CAIRN_ASSIGN_OR_RETURN(auto held, HeldDirectory::Open(path, directory, parent));
  auto files = std::make_shared<PosixFileSystem>(name_, new_queue_, file_mode_);
  files->held_ = held_;
  files->held_.push_back(std::move(held));
  return std::shared_ptr<FileSystem>(std::move(files));
}

// The innermost held directory that the path leads into.
const HeldDirectory* PosixFileSystem::HolderOf(std::string_view path) const {
  const HeldDirectory* holder = nullptr;
  for (const auto& held : held_) {
    const std::string_view root = held->path();
    const bool inside = path.starts_with(root) &&
                        (path.size() == root.size() || root == "/" || path[root.size()] == '/');
    if (inside && (holder == nullptr || holder->path().size() <= root.size())) holder = held.get();
  }
  return holder;
}

Result<PosixPlace> PosixFileSystem::PlaceOf(const std::string& path, Of of) const {
  if (const HeldDirectory* held = HolderOf(path); held != nullptr && !LeadsUp(path)) {
    std::string_view rest = std::string_view(path).substr(held->path().size());
    while (rest.starts_with('/')) rest.remove_prefix(1);
    if (!rest.empty()) return held->Beneath(rest, path);
    return of == Of::kName ? held->NameInParent() : held->Itself();
  }
  for (const auto& held : held_) {
    if (of == Of::kContent && WithoutTrailingSlashes(path) == ParentPath(held->path())) {
      return held->Parent();
    }
  }
  return PosixPlace{.name = path};
}

// For calls that take no descriptor of their own.
Result<PosixPlace> PosixFileSystem::CheckedPlaceOf(const std::string& path, Of of) const {
  Result<PosixPlace> place = PlaceOf(path, of);
  if (place.ok()) CAIRN_RETURN_IF_ERROR(place->Check(path));
  return place;
}

Result<bool> PosixFileSystem::IsReplaced(const std::string& path) {
  const HeldDirectory* held = HolderOf(path);
  if (held == nullptr || held->path() != WithoutTrailingSlashes(path)) return false;
  return held->IsReplaced();
}

// ---------------------------------------------------------------- files and names

Result<std::unique_ptr<File>> PosixFileSystem::Open(const std::string& path,
                                                    const OpenOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, PlaceOf(path));
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<File> file,
                         PosixFile::Open(path, place, options, file_mode_));
  return file;
}

Result<FileInfo> PosixFileSystem::Info(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path));
  struct stat status;
  if (fstatat(place.directory, place.name.c_str(), &status, place.at_no_follow()) != 0) {
    return LookupError(errno, "stat", path, place);
  }
  if (S_ISLNK(status.st_mode)) return LinkIsFound("stat", path);
  return FileInfo{.bytes = static_cast<uint64_t>(status.st_size),
                  .allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512,
                  .is_directory = S_ISDIR(status.st_mode)};
}

Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace old_place, CheckedPlaceOf(from, Of::kName));
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace new_place, CheckedPlaceOf(to, Of::kName));
  if (renameat(old_place.directory, old_place.name.c_str(), new_place.directory,
               new_place.name.c_str()) == 0) {
    return {};
  }
  return OsError(errno, "rename", from + " to " + to);
}

Result<bool> PosixFileSystem::Link(const std::string& from, const std::string& to) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace source, CheckedPlaceOf(from, Of::kName));
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace target, CheckedPlaceOf(to, Of::kName));
  struct stat status;
  if (linkat(source.directory, source.name.c_str(), target.directory, target.name.c_str(), 0) ==
      0) {
    // The call follows no symbolic link, it gives it a second name.
    if (fstatat(target.directory, target.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISLNK(status.st_mode)) {
      return true;
    }
    unlinkat(target.directory, target.name.c_str(), 0);
    return LinkIsFound("link", from);
  }
  // Errors of Link are found before the file systems are asked, except that linking a directory is
  // EPERM, as is a file system without hard links.
  const int error = errno;
  if (LinkIsRefused(error) &&
      fstatat(source.directory, source.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISDIR(status.st_mode)) {
    return false;
  }
  return OsError(error, "link", from + " to " + to);
}

Status PosixFileSystem::Remove(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path, Of::kName));
  if (unlinkat(place.directory, place.name.c_str(), 0) == 0) return {};
  if (errno != EISDIR) return OsError(errno, "unlink", path);
  if (unlinkat(place.directory, place.name.c_str(), AT_REMOVEDIR) == 0) return {};
  return OsError(errno, "rmdir", path);
}

Status PosixFileSystem::CreateDirectory(const std::string& path) {
  const mode_t mode = file_mode_ | (file_mode_ & 0444) >> 2;  // Readers may enter.
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path, Of::kName));
  if (mkdirat(place.directory, place.name.c_str(), mode) != 0) return OsError(errno, "mkdir", path);
  // The umask removed some bits; a file system without modes refuses, and then there are none to
  // keep.
  static_cast<void>(fchmodat(place.directory, place.name.c_str(), mode, 0));
  return {};
}

// A held directory needs no further descriptor: new names must become durable also when the process
// has none left.
Status PosixFileSystem::SyncDirectory(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path));
  if (place.IsHeldDirectory()) return SyncNow(place.directory, path);
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, OpenDirectory(path, place));
  return SyncNow(fd.get(), path);
}

Result<std::vector<std::string>> PosixFileSystem::List(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, PlaceOf(path));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path, place));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd.get()), closedir);
  if (directory == nullptr) return OsError(errno, "opendir", path);
  static_cast<void>(fd.Release());  // closedir closes it.
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
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, PlaceOf(path));
  return TakePosixLock(path, place, file_mode_);
}

Result<bool> PosixFileSystem::IsLocked(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, PlaceOf(path));
  return IsPosixLocked(path, place);
}

// For a held directory without a further descriptor: a store must know the free space when the
// process has no descriptor left.
Result<struct statfs> PosixFileSystem::VolumeOf(const std::string& path) const {
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path));
  struct statfs status;
  if (place.directory == AT_FDCWD) {
    if (statfs(place.name.c_str(), &status) == 0) return status;
  } else if (place.IsHeldDirectory()) {
    if (fstatfs(place.directory, &status) == 0) return status;
  } else {
    const UniqueFd fd(
        openat(place.directory, place.name.c_str(), O_PATH | O_CLOEXEC | place.no_follow()));
    if (!fd.valid()) return LookupError(errno, "open", path, place);
    if (fstatfs(fd.get(), &status) == 0) return status;
  }
  return OsError(errno, "statfs", path);
}

Result<VolumeInfo> PosixFileSystem::Volume(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const struct statfs status, VolumeOf(path));
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
  CAIRN_ASSIGN_OR_RETURN(const PosixPlace place, CheckedPlaceOf(path));
  info.direct_io = AcceptsDirectIo(place);
  return info;
}

uint64_t PosixFileSystem::OpenFilesMax() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

Result<DiskSpace> PosixFileSystem::Space(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const struct statfs status, VolumeOf(path));
  const auto block_bytes = static_cast<uint64_t>(status.f_bsize);
  return DiskSpace{.total_bytes = status.f_blocks * block_bytes,
                   .free_bytes = status.f_bavail * block_bytes};
}

}  // namespace cairn::io
