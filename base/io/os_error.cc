// SPDX-License-Identifier: Apache-2.0
#include "base/io/os_error.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/core/out_of_memory.h"

namespace cairn::io {

StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return StatusCode::kNoSpace;
    case EROFS: return StatusCode::kReadOnly;
    case ENOENT: return StatusCode::kNotFound;
    case EEXIST: return StatusCode::kAlreadyExists;
    case ENOMEM: return StatusCode::kOutOfMemory;
    default: return StatusCode::kIoError;
  }
}

namespace {

StatusReason ReasonOfErrno(int error) {
  return error == EMFILE || error == ENFILE ? StatusReason::kNoDescriptor : StatusReason::kNone;
}

}  // namespace

bool LinkIsRefused(int error) {
  return error == EXDEV || error == EPERM || error == EOPNOTSUPP || error == EMLINK;
}

std::string DescribeErrno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  if (name == nullptr || text == nullptr) return "errno " + std::to_string(error);
  return std::string(name) + " (" + text + ")";
}

Status OsError(int error, std::string_view call, std::string_view path) {
  return CatchBadAlloc([&] {
    return Status(CodeOfErrno(error),
                  std::string(call) + " " + std::string(path) + ": " + DescribeErrno(error),
                  ReasonOfErrno(error));
  });
}

Status OsError(int error, std::string_view call, std::string_view path, uint64_t offset,
               uint64_t length) {
  return CatchBadAlloc([&] {
    return Status(CodeOfErrno(error), std::string(call) + " " + std::string(path) + ": offset " +
                                          std::to_string(offset) + ", length " +
                                          std::to_string(length) + ": " + DescribeErrno(error));
  });
}

Status EndOfFile(std::string_view path, uint64_t offset, uint64_t length, uint64_t transferred) {
  return CatchBadAlloc([&] {
    return Status(StatusCode::kIoError,
                  "read " + std::string(path) + ": offset " + std::to_string(offset) + ", length " +
                      std::to_string(length) + ": the file ends after " +
                      std::to_string(transferred) + " of these bytes",
                  StatusReason::kEndOfFile);
  });
}

Status LockedElsewhere(std::string_view path, int64_t holder) {
  return CatchBadAlloc([&] {
    std::string by = "another opening, in this process or another";
    if (holder == getpid()) by = "another opening in this process";
    if (holder != 0 && holder != getpid()) by = "process " + std::to_string(holder);
    return Status(StatusCode::kLocked, "lock " + std::string(path) + ": held by " + by);
  });
}

Status LinkIsFound(std::string_view call, std::string_view path) {
  return CatchBadAlloc([&] {
    return Status(StatusCode::kIoError,
                  std::string(call) + " " + std::string(path) +
                      ": it is a symbolic link; links within a store are not followed");
  });
}

Status DescriptorIsLost(std::string_view path, int fd) {
  return CatchBadAlloc([&] {
    return Status(StatusCode::kIoError,
                  std::string(path) + ": its descriptor " + std::to_string(fd) +
                      " was closed by this program, and may be another file's now");
  });
}

Status LockIsLost(std::string_view path) {
  return CatchBadAlloc([&] {
    return Status(StatusCode::kLocked,
                  "lock " + std::string(path) +
                      ": the file that is held was removed or replaced; another may write here");
  });
}

}  // namespace cairn::io
