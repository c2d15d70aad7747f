// SPDX-License-Identifier: Apache-2.0
//
// What the operating system refused, as a Status. Every backend words its errors here, the ones in
// memory too, so that a caller meets the same code and the same text whatever lies below. Without
// memory for the words it is kOutOfMemory: who reaps requests, and threads of a pool, must not
// throw.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "cairn/status.h"

namespace cairn::io {

// kNoSpace for ENOSPC and EDQUOT, kReadOnly for EROFS, kNotFound for ENOENT, kAlreadyExists for
// EEXIST, kOutOfMemory for ENOMEM, kIoError for all others.
StatusCode CodeOfErrno(int error);

// Whether link(2) says by this errno that the names cannot share a file, though a copy can be made:
// another volume (EXDEV), a file system without hard links or one that keeps them to the owner
// (EPERM, EOPNOTSUPP), too many of them (EMLINK).
bool LinkIsRefused(int error);

// A system call that answers -1, again for as long as signals interrupt it.
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

// Somebody holds the lock.
Status LockedElsewhere(std::string_view path);

// The file that we hold has its name no more.
Status LockIsLost(std::string_view path);

}  // namespace cairn::io
