// SPDX-License-Identifier: Apache-2.0
#include "base/io/lock_holder.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include "base/io/os_error.h"
#include "base/io/unique_fd.h"

namespace cairn::io {
namespace {

constexpr int kFilesMax = 100'000;  // A fifth of a second or less.

// Calls `visit` with the directory and each name in it that is a number, until that returns true.
template <typename Visit>
bool AnyNumber(int parent, const char* path, Visit visit) {
  UniqueFd fd(openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd.get()), closedir);
  if (directory == nullptr) return false;
  static_cast<void>(fd.Release());  // The stream's now.
  while (const dirent* const entry = readdir(directory.get())) {
    const bool number = entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    if (number && visit(dirfd(directory.get()), entry->d_name)) return true;
  }
  return false;
}

// Only of a file of that name is the inode looked at, since that of another may be on a network
// that does not answer.
bool IsFile(int descriptors, const char* number, const struct stat& file, std::string_view name) {
  std::array<char, 4096> target;
  const ssize_t bytes = readlinkat(descriptors, number, target.data(), target.size());
  if (bytes <= 0) return false;
  const std::string_view path(target.data(), static_cast<size_t>(bytes));
  if (path.substr(path.rfind('/') + 1) != name) return false;
  struct stat found {};
  return fstatat(descriptors, number, &found, 0) == 0 && found.st_dev == file.st_dev &&
         found.st_ino == file.st_ino;
}

// A reader may have the file open, too, for an instant (IsPosixLocked).
bool HoldsLock(int process, const char* number) {
  const UniqueFd infos(openat(process, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!infos.valid()) return false;
  const UniqueFd info(openat(infos.get(), number, O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return false;
  std::array<char, 4096> text;
  const ssize_t bytes =
      RetryInterrupted([&] { return read(info.get(), text.data(), text.size()); });
  if (bytes <= 0) return false;
  return std::string_view(text.data(), static_cast<size_t>(bytes)).find("\nlock:") !=
         std::string_view::npos;
}

}  // namespace

pid_t LockHolder(const struct stat& file, const std::string& name) {
  pid_t holder = 0;
  int left = kFilesMax;
  AnyNumber(AT_FDCWD, "/proc", [&](int processes, const char* pid) {
    const UniqueFd process(openat(processes, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!process.valid()) return false;
    const bool holds = AnyNumber(process.get(), "fd", [&](int descriptors, const char* number) {
      if (left == 0) return true;
      --left;
      return IsFile(descriptors, number, file, name) && HoldsLock(process.get(), number);
    });
    if (holds && left > 0) holder = static_cast<pid_t>(std::atoi(pid));
    return holds;
  });
  return holder;
}

}  // namespace cairn::io
