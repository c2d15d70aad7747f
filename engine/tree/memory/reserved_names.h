// SPDX-License-Identifier: Apache-2.0
//
// Namespaces that callers may not use for branches: those of objects (cairn/objects.h). A namespace
// of objects has the caller's name behind this prefix. Its branches are made, found and dropped
// only by engine/objects/; their names are escaped keys, which may be twice as long as a key
// (objects/object_names.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/limits.h"
#include "cairn/status.h"

namespace cairn::engine {

inline constexpr std::string_view kObjectSpace{"\x01o"};

constexpr bool IsReserved(std::string_view ns) { return ns.starts_with(kObjectSpace); }

constexpr uint64_t NamespaceBytesMax(std::string_view ns) {
  return kMaxNameBytes + (IsReserved(ns) ? kObjectSpace.size() : 0);
}
constexpr uint64_t NameBytesMax(std::string_view ns) {
  return IsReserved(ns) ? 2 * kMaxNameBytes : kMaxNameBytes;
}

// kInvalidArgument for a call about branches.
Status CheckNotReserved(std::string_view ns);

}  // namespace cairn::engine
