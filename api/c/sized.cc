// SPDX-License-Identifier: Apache-2.0
#include "api/c/sized.h"

#include <algorithm>

namespace cairn::capi {

namespace {
// No struct has less than a field, and a size of 4 KiB was never set.
constexpr size_t kMinStructBytes = 2 * sizeof(size_t);
constexpr size_t kMaxStructBytes = 4096;
}  // namespace

Status CheckStructSize(const void* given, size_t known, const char* name) {
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < kMinStructBytes || size > kMaxStructBytes || size % sizeof(size_t) != 0) {
    return Invalid(std::string(name) + "::struct_size is " + std::to_string(size) +
                   "; here it is " + std::to_string(known));
  }
  return Status::Ok();
}

Status CheckSized(const void* given, size_t known, const char* name) {
  CAIRN_RETURN_IF_ERROR(CheckStructSize(given, known, name));
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  const auto* const bytes = static_cast<const std::byte*>(given);
  for (size_t at = known; at < size; ++at) {
    if (bytes[at] != std::byte{0}) {
      return Invalid(std::string(name) + ": something is set at byte " + std::to_string(at) +
                     ", and this library knows " + std::to_string(known));
    }
  }
  return Status::Ok();
}

Status CheckCount(const void* first, size_t count, size_t max, const char* field) {
  if (first == nullptr && count != 0) {
    return Invalid(std::string(field) + " is NULL, and " + std::to_string(count) + " are given");
  }
  if (count > max) {
    return Invalid(std::string(field) + ": " + std::to_string(count) + " given, at most " +
                   std::to_string(max));
  }
  return Status::Ok();
}

}  // namespace cairn::capi

#define CAIRN_C_DEFINE_INIT(name)                                                \
  extern "C" void cairn_##name##_init(cairn_##name* given, size_t struct_size) { \
    if (given == nullptr || struct_size < sizeof(size_t)) return;                \
    given->struct_size = struct_size;                                            \
    cairn::capi::Write(cairn::capi::Sized<cairn_##name>::Default(), given);      \
  }
CAIRN_C_SIZED(CAIRN_C_DEFINE_INIT)
