// SPDX-License-Identifier: Apache-2.0
//
// Errors of the operating system as a Status. Every backend, also in memory, makes its errors here,
// so that a caller gets the same code and the same text from all. If there is no memory for the
// text it is kOutOfMemory: reaping requests, and threads of a pool, must not throw.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "cairn/status.h"

namespace cairn::io {

// kNoSpace for ENOSPC and EDQUOT, kReadOnly for EROFS, kNotFound for ENOENT, kAlreadyExists for
// EEXIST, kOutOfMemory for ENOMEM, kIoError for all others.
StatusCode CodeOfErrno(int error);

// Whether link(2) fails by this errno although a copy can be made: another volume (EXDEV), a file
// system without hard links or one that keeps them to the owner (EPERM, EOPNOTSUPP), too many of
// them (EMLINK).
bool LinkIsRefused(int error);

// Repeats a system call that returns -1 while signals interrupt it.
template <typename Call>
auto RetryInterrupted(Call call) {
  for (;;) {
    auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// "EIO (Input/output error)".
std::string DescribeErrno(int error);

// "pwrite store/log/00000007.log: offset 4096, length 8192: ENOSPC (No space left on device)".
Status OsError(int error, std::string_view call, std::string_view path);
Status OsError(int error, std::string_view call, std::string_view path, uint64_t offset,
               uint64_t length);

// A read that met the end of the file after `transferred` bytes.
Status EndOfFile(std::string_view path, uint64_t offset, uint64_t length, uint64_t transferred);

// Another holder has the lock: that process, or 0 if it is not known.
Status LockedElsewhere(std::string_view path, int64_t holder);

// There is a symbolic link where only files and directories may be.
Status LinkIsFound(std::string_view call, std::string_view path);

// The descriptor `fd` of that file was closed by somebody else, and may be another file's now.
Status DescriptorIsLost(std::string_view path, int fd);

// The file that we hold has lost its name.
Status LockIsLost(std::string_view path);

}  // namespace cairn::io
