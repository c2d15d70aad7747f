// SPDX-License-Identifier: Apache-2.0
//
// Structs that may grow. A program was built with one size of a struct and the library with
// another: fields that both know are copied, fields that the program does not know get the
// library's default, and fields that the library does not know must be zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "api/c/call.h"
#include "cairn/c.h"

namespace cairn::capi {

// The structs that a caller fills or has filled, each with a cairn_X_init.
// clang-format off
#define CAIRN_C_SIZED(X)                                                                       \
  X(plane) X(layer_group) X(logical_group) X(model_spec) X(plane_view) X(group_view)           \
  X(kv_view) X(group_tensors) X(keep) X(namespace_policy) X(options) X(sampler_state)          \
  X(app_metadata) X(delta) X(append_options) X(branch_options) X(restore_request)              \
  X(prefix_query) X(prefix_hit) X(histogram) X(refresh_result) X(checkpoint_info)              \
  X(object_class) X(object_put) X(put_options) X(object_get) X(get_options) X(gpu_options)     \
  X(sparse_arena_options) X(sparse_options) X(sparse_wanted) X(sparse_view) X(sparse_stats)    \
  X(shadow_spec) X(shadow_of) X(shadow_info) X(shadow_options) X(shadow_query) X(shadow_fetch) \
  X(shadow_rows) X(shadow_view) X(key_rotation) X(compose_document) X(compose_request)         \
  X(export_options) X(import_options) X(forest_options) X(forest_info) X(copy_kv_options)      \
  X(slot_counts)
// clang-format on

template <typename T>
struct Sized;

// `Default`, in defaults.cc, is made from the C++ defaults.
#define CAIRN_C_DECLARE_SIZED(name)                      \
  template <>                                            \
  struct Sized<cairn_##name> {                           \
    static constexpr const char* kName = "cairn_" #name; \
    static cairn_##name Default();                       \
  };
CAIRN_C_SIZED(CAIRN_C_DECLARE_SIZED)
#undef CAIRN_C_DECLARE_SIZED

// kInvalidArgument naming the struct if no library has, or will have, one of this size. Enough for
// a struct that is only written to: fields that only a newer program knows become zero.
Status CheckStructSize(const void* given, size_t known, const char* name);
// Also if there is something other than zeros beyond the `known` bytes.
Status CheckSized(const void* given, size_t known, const char* name);

// The given struct; all defaults if that is null.
template <typename T>
Result<T> Read(const T* given) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  T read = Sized<T>::Default();
  if (given == nullptr) return read;
  CAIRN_RETURN_IF_ERROR(CheckSized(given, sizeof(T), Sized<T>::kName));
  std::memcpy(&read, given, std::min(given->struct_size, sizeof(T)));
  read.struct_size = sizeof(T);
  return read;
}

Status CheckCount(const void* first, size_t count, size_t max, const char* field);

// An array of such structs; null where there are none.
template <typename T>
Result<std::vector<T>> ReadAll(const T* first, size_t count, size_t max, const char* field) {
  CAIRN_RETURN_IF_ERROR(CheckCount(first, count, max, field));
  std::vector<T> all;
  all.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto* const at = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) +
                                                      i * first->struct_size);
    if (at->struct_size != first->struct_size) {
      return Invalid(std::string(field) + ": struct_size of element " + std::to_string(i) +
                     " is not that of the first");
    }
    CAIRN_ASSIGN_OR_RETURN(T one, Read(at));
    all.push_back(one);
  }
  return all;
}

// Copies into a struct of the caller's, which CheckStructSize has checked.
template <typename T>
void Write(T value, T* into) {
  const size_t size = into->struct_size;
  std::memset(static_cast<void*>(into), 0, size);
  std::memcpy(static_cast<void*>(into), &value, std::min(size, sizeof(T)));
  into->struct_size = size;
}

}  // namespace cairn::capi
