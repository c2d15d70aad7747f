// SPDX-License-Identifier: Apache-2.0
#include "base/io/posix_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "base/core/check.h"
#include "base/io/child_closes.h"
#include "base/io/lock_holder.h"
#include "base/io/os_error.h"
#include "base/io/own_fd.h"

namespace cairn::io {
namespace {

struct flock WholeFile(short type) {
  return {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
}

// 0, EWOULDBLOCK when another holder has it, or the errno.
int TryLock(int fd) {
  struct flock whole = WholeFile(F_WRLCK);
  if (RetryInterrupted([&] { return fcntl(fd, F_OFD_SETLK, &whole); }) == 0) return 0;
  if (errno == EINVAL && RetryInterrupted([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0) {
    return 0;
  }
  return errno == EACCES ? EWOULDBLOCK : errno;
}

void Unlock(int fd) {
  struct flock whole = WholeFile(F_UNLCK);
  if (fcntl(fd, F_OFD_SETLK, &whole) != 0) flock(fd, LOCK_UN);
}

// Whether the name leads to the open file. Also true if the lookup fails, unless the name is gone:
// a network that is slow to answer has taken nothing away.
bool Leads(const PosixPlace& place, const OwnFd& fd) {
  struct stat named;
  if (fstatat(place.directory, place.name.c_str(), &named, place.at_no_follow()) != 0) {
    return errno != ENOENT;
  }
  return fd.Is(named);
}

// The process that holds the file's lock, or 0.
pid_t Holder(const PosixPlace& place, const OwnFd& fd) {
  struct stat file {};
  if (fstat(fd.get(), &file) != 0) return 0;
  return LockHolder(file, place.name.substr(place.name.rfind('/') + 1));
}

class PosixLock final : public FileLock {
 public:
  PosixLock(std::string path, PosixPlace place, OwnFd fd)
      : path_(std::move(path)), place_(std::move(place)), owner_(getpid()), fd_(std::move(fd)) {
    CloseInChildren(&fd_);
  }
  // In a child made by a bare system call the open file may still be shared: so it is unlocked, not
  // only closed.
  ~PosixLock() override {
    if (getpid() != owner_) {
      static_cast<void>(fd_.Release());  // The fork closed it.
      return;
    }
    StopClosingInChildren(&fd_);
    if (fd_.IsOurs()) Unlock(fd_.get());
  }
  // The lock went with the descriptor, if that was closed.
  Status Check() override {
    CAIRN_RETURN_IF_ERROR(fd_.Check(path_));
    CAIRN_RETURN_IF_ERROR(place_.Check(path_));
    return Leads(place_, fd_) ? Status() : LockIsLost(path_);
  }

 private:
  const std::string path_;
  const PosixPlace place_;
  const pid_t owner_;
  OwnFd fd_;
};

}  // namespace

Result<std::unique_ptr<FileLock>> TakePosixLock(const std::string& path, const PosixPlace& place,
                                                uint32_t mode) {
  constexpr int kAttempts = 6;  // With a pause after each but the last: a quarter of a second.
  constexpr timespec kPause{0, 50'000'000};
  for (int attempt = 1;; ++attempt) {
    CAIRN_ASSIGN_OR_RETURN(UniqueFd opened,
                           OpenPosix(path, place, {.write = true, .create = true}, mode));
    OwnFd fd(std::move(opened));
    const int error = TryLock(fd.get());
    // If the file was removed or replaced meanwhile, begin again with the new one.
    if (error == 0 && Leads(place, fd)) {
      return std::unique_ptr<FileLock>(std::make_unique<PosixLock>(path, place, std::move(fd)));
    }
    if (error != 0 && error != EWOULDBLOCK) return OsError(error, "fcntl(F_OFD_SETLK)", path);
    if (attempt >= kAttempts) return LockedElsewhere(path, Holder(place, fd));
    nanosleep(&kPause, nullptr);
  }
}

Result<bool> IsPosixLocked(const std::string& path, const PosixPlace& place) {
  const Result<UniqueFd> fd = OpenPosix(path, place, {}, 0);
  if (fd.status().code() == StatusCode::kNotFound) return false;
  CAIRN_RETURN_IF_ERROR(fd.status());
  struct flock whole = WholeFile(F_RDLCK);
  if (RetryInterrupted([&] { return fcntl(fd->get(), F_OFD_GETLK, &whole); }) == 0) {
    return whole.l_type != F_UNLCK;
  }
  if (errno != EINVAL) return OsError(errno, "fcntl(F_OFD_GETLK)", path);
  // A shared lock succeeds only while nobody has the lock; it goes with the descriptor.
  if (RetryInterrupted([&] { return flock(fd->get(), LOCK_SH | LOCK_NB); }) == 0) return false;
  if (errno == EWOULDBLOCK) return true;
  return OsError(errno, "flock", path);
}

}  // namespace cairn::io
