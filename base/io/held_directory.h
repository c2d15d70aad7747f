// SPDX-License-Identifier: Apache-2.0
//
// A directory of the operating system that is held open, and how names below it are looked up: from
// its descriptor, one name after the other, and never through a symbolic link. So a directory that
// came from elsewhere leads to no file outside of it. The path of the held directory itself may go
// through links.
//
// openat2(RESOLVE_BENEATH) would do the same in one call, but old kernels lack it and sandboxes
// refuse it. Each step here takes a single name, which is beneath the directory already, and
// O_NOFOLLOW; the directories inside stay open, so there is a step more at first use only.
#pragma once

#include <fcntl.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/core/mutex.h"
#include "base/io/own_fd.h"
#include "base/io/unique_fd.h"
#include "cairn/status.h"

namespace cairn::io {

// A path as a name and the directory from which it is looked up.
struct PosixPlace {
  int directory = AT_FDCWD;
  std::string name;
  bool within = false;                   // In a held directory: the name may not be a link.
  std::shared_ptr<const OwnFd> keeps{};  // Keeps `directory` open; null for AT_FDCWD.

  // Flags of openat and its like: what keeps them from following the name.
  int no_follow() const { return within ? O_NOFOLLOW : 0; }
  int at_no_follow() const { return no_follow() != 0 ? AT_SYMLINK_NOFOLLOW : 0; }
  bool IsHeldDirectory() const;  // The directory itself, which is open already.
  // Whether the directory's number is still its own.
  Status Check(std::string_view path) const {
    return keeps == nullptr ? Status() : keeps->Check(path);
  }
};

// OsError, or the refusal of a link if that is why the call failed.
Status LookupError(int error, std::string_view call, const std::string& path,
                   const PosixPlace& place);

Result<UniqueFd> OpenDirectory(const std::string& path, const PosixPlace& place);

class HeldDirectory {
 public:
  // Opens `directory`, which errors call `path`, and its parent.
  static Result<std::shared_ptr<const HeldDirectory>> Open(const std::string& path,
                                                           const PosixPlace& directory,
                                                           const PosixPlace& parent);

  const std::string& path() const { return path_; }  // As it was given, without slashes at its end.
  PosixPlace Itself() const { return {directory_->get(), ".", true, directory_}; }
  PosixPlace Parent() const { return {parent_->get(), ".", false, parent_}; }
  PosixPlace NameInParent() const { return {parent_->get(), name_, false, parent_}; }
  // What is at `rest`, below this directory; `path` is for errors.
  Result<PosixPlace> Beneath(std::string_view rest, const std::string& path) const;
  // Whether the name in the parent leads to another directory now.
  Result<bool> IsReplaced() const;

 private:
  Result<std::shared_ptr<const OwnFd>> Enter(const PosixPlace& inner,
                                             const std::string& path) const;

  std::string path_, name_;  // The name in the parent.
  std::shared_ptr<const OwnFd> directory_, parent_;
  // Directories inside that were entered, by name.
  mutable Mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const OwnFd>> entered_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::io
