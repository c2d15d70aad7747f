// SPDX-License-Identifier: Apache-2.0
//
// Owns a file descriptor, never one of 0 to 2: a process that closed those still writes "standard
// output" and "standard error" to any file that has their numbers.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/core/mutation.h"

namespace cairn::io {

// `fd`; if it is one of the standard three it is moved above them and closed there; close-on-exec.
// -1 with errno if no other can be had.
inline int AboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO || !CAIRN_KEPT(kAboveStandard)) return fd;
  const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return above;
}

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(AboveStandard(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  // An error of close() says nothing that an earlier sync would not have said.
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // The caller closes it.

 private:
  int fd_ = -1;
};

}  // namespace cairn::io
