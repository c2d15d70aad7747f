// SPDX-License-Identifier: Apache-2.0
#include "base/io/os_error.h"

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
  return Guarded([&] {
    return Status(CodeOfErrno(error),
                  std::string(call) + " " + std::string(path) + ": " + DescribeErrno(error),
                  ReasonOfErrno(error));
  });
}

Status OsError(int error, std::string_view call, std::string_view path, uint64_t offset,
               uint64_t length) {
  return Guarded([&] {
    return Status(CodeOfErrno(error), std::string(call) + " " + std::string(path) + ": offset " +
                                          std::to_string(offset) + ", length " +
                                          std::to_string(length) + ": " + DescribeErrno(error));
  });
}

Status EndOfFile(std::string_view path, uint64_t offset, uint64_t length, uint64_t transferred) {
  return Guarded([&] {
    return Status(StatusCode::kIoError,
                  "read " + std::string(path) + ": offset " + std::to_string(offset) + ", length " +
                      std::to_string(length) + ": the file ends after " +
                      std::to_string(transferred) + " of these bytes",
                  StatusReason::kEndOfFile);
  });
}

Status LockedElsewhere(std::string_view path) {
  return Status(StatusCode::kLocked, "lock " + std::string(path) +
                                         ": held by another opening, in this process or another");
}

Status LockIsLost(std::string_view path) {
  return Guarded([&] {
    return Status(StatusCode::kLocked,
                  "lock " + std::string(path) +
                      ": the file that is held was removed or replaced; another may write here");
  });
}

}  // namespace cairn::io
