// SPDX-License-Identifier: Apache-2.0
#include "cairn/status.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"

namespace cairn {

namespace {
const Status kAllocationFailed(StatusCode::kOutOfMemory, "an allocation failed");
}  // namespace

Status OutOfMemory() { return kAllocationFailed; }

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "Ok";
    case StatusCode::kNotFound: return "NotFound";
    case StatusCode::kAlreadyExists: return "AlreadyExists";
    case StatusCode::kInvalidArgument: return "InvalidArgument";
    case StatusCode::kInvalidState: return "InvalidState";
    case StatusCode::kConflict: return "Conflict";
    case StatusCode::kModelMismatch: return "ModelMismatch";
    case StatusCode::kCorruption: return "Corruption";
    case StatusCode::kEvicted: return "Evicted";
    case StatusCode::kExpired: return "Expired";
    case StatusCode::kStale: return "Stale";
    case StatusCode::kNoSpace: return "NoSpace";
    case StatusCode::kBusy: return "Busy";
    case StatusCode::kPoisoned: return "Poisoned";
    case StatusCode::kUnknownOutcome: return "UnknownOutcome";
    case StatusCode::kIoError: return "IoError";
    case StatusCode::kReadOnly: return "ReadOnly";
    case StatusCode::kLocked: return "Locked";
    case StatusCode::kUnsupportedFormat: return "UnsupportedFormat";
    case StatusCode::kCancelled: return "Cancelled";
    case StatusCode::kDeadlineExceeded: return "DeadlineExceeded";
    case StatusCode::kOutOfMemory: return "OutOfMemory";
  }
  return "Unknown";
}

Status::Status(StatusCode code, std::string message, StatusReason reason) {
  CAIRN_CHECK(code != StatusCode::kOk);
  state_ = std::make_shared<const State>(State{code, reason, std::move(message)});
}

std::string Status::ToString() const {
  if (ok()) return "Ok";
  return std::string(StatusCodeName(code())) + ": " + state_->message;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + state_->message, reason());
}

namespace internal {
void DieBadResult(const char* why) {
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  Dl_info object{};
  if (dladdr(reinterpret_cast<const void*>(caller), &object) == 0) object = {};
  const auto* const elf = static_cast<const ElfW(Ehdr)*>(object.dli_fbase);
  const bool moved = elf != nullptr && elf->e_type != ET_EXEC;
  // The call is one byte before its return address.
  const uintptr_t at = caller - 1 - (moved ? reinterpret_cast<uintptr_t>(elf) : 0);
  std::fprintf(stderr,
               "cairn: read the value of a failed Result: %s\n"
               "cairn: the line is told by: addr2line -Cfie %s 0x%zx\n",
               why, object.dli_fname == nullptr ? "PROGRAM" : object.dli_fname, at);
  std::abort();
}

void DieBadResult(const char* why, const CodeLocation& where) {
  std::fprintf(stderr, "cairn: %s:%u: read the value of a failed Result: %s\n", where.file,
               where.line, why);
  std::abort();
}
}  // namespace internal

void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "cairn: %s:%d: check failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace cairn
