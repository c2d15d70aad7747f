// SPDX-License-Identifier: Apache-2.0
#include "base/io/held_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/io/os_error.h"
#include "base/io/path.h"

namespace cairn::io {

bool PosixPlace::IsHeldDirectory() const { return directory != AT_FDCWD && name == "."; }

Status LookupError(int error, std::string_view call, const std::string& path,
                   const PosixPlace& place) {
  struct stat named;
  // With O_DIRECTORY a link that is not followed is ENOTDIR.
  if (place.within && (error == ELOOP || error == ENOTDIR) &&
      fstatat(place.directory, place.name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(named.st_mode)) {
    return LinkIsFound(call, path);
  }
  return OsError(error, call, path);
}

Result<UniqueFd> OpenDirectory(const std::string& path, const PosixPlace& place) {
  CAIRN_RETURN_IF_ERROR(place.Check(path));
  const auto open_it = [&](int access) {
    return UniqueFd(RetryInterrupted([&] {
      return openat(place.directory, place.name.c_str(),
                    access | O_DIRECTORY | O_CLOEXEC | place.no_follow());
    }));
  };
  UniqueFd fd = open_it(O_RDONLY);
  // Names can be looked up from a directory that one may not read.
  if (!fd.valid() && errno == EACCES) fd = open_it(O_PATH);
  if (!fd.valid()) return LookupError(errno, "open", path, place);
  return fd;
}

Result<std::shared_ptr<const HeldDirectory>> HeldDirectory::Open(const std::string& path,
                                                                 const PosixPlace& directory,
                                                                 const PosixPlace& parent) {
  auto held = std::make_shared<HeldDirectory>();
  held->path_ = WithoutTrailingSlashes(path);
  held->name_ = BaseName(path);
  CAIRN_ASSIGN_OR_RETURN(UniqueFd opened, OpenDirectory(path, directory));
  held->directory_ = std::make_shared<const OwnFd>(std::move(opened));
  CAIRN_ASSIGN_OR_RETURN(UniqueFd above, OpenDirectory(ParentPath(path), parent));
  held->parent_ = std::make_shared<const OwnFd>(std::move(above));
  return std::shared_ptr<const HeldDirectory>(std::move(held));
}

Result<PosixPlace> HeldDirectory::Beneath(std::string_view rest, const std::string& path) const {
  PosixPlace place = Itself();
  bool first = true;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
    if (part.empty() || part == ".") continue;
    if (place.name != ".") {  // A name was taken before: it is a directory on the way.
      std::shared_ptr<const OwnFd> inner;
      if (first) {
        CAIRN_ASSIGN_OR_RETURN(inner, Enter(place, path));
      } else {
        CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path, place));
        inner = std::make_shared<const OwnFd>(std::move(fd));
      }
      first = false;
      place.directory = inner->get();
      place.keeps = std::move(inner);
    }
    place.name = part;
  }
  return place;
}

// A directory in this one. It is looked up each time, since it may have been made again under the
// same name; that takes no descriptor.
Result<std::shared_ptr<const OwnFd>> HeldDirectory::Enter(const PosixPlace& inner,
                                                          const std::string& path) const {
  CAIRN_RETURN_IF_ERROR(inner.Check(path));
  struct stat named;
  if (fstatat(inner.directory, inner.name.c_str(), &named, inner.at_no_follow()) != 0) {
    return OsError(errno, "stat", path);
  }
  std::shared_ptr<const OwnFd> entered;
  {
    const MutexLock lock(&mutex_);
    if (const auto found = entered_.find(inner.name); found != entered_.end()) {
      entered = found->second;
    }
  }
  if (entered != nullptr && entered->Is(named)) return entered;
  CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path, inner));
  entered = std::make_shared<const OwnFd>(std::move(fd));
  std::shared_ptr<const OwnFd> old;  // Closed without the lock.
  const MutexLock lock(&mutex_);
  old = std::exchange(entered_[inner.name], entered);
  return entered;
}

Result<bool> HeldDirectory::IsReplaced() const {
  CAIRN_RETURN_IF_ERROR(directory_->Check(path_));
  CAIRN_RETURN_IF_ERROR(parent_->Check(path_));
  struct stat named;
  if (fstatat(parent_->get(), name_.c_str(), &named, 0) != 0) {
    if (errno == ENOENT) return false;
    return OsError(errno, "stat", path_);
  }
  return !directory_->Is(named);
}

}  // namespace cairn::io
