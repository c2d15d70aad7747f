// SPDX-License-Identifier: Apache-2.0
//
// Byte strings between both languages. Each way is a copy: they are small.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "api/python/src/common.h"

namespace cairn::python {

inline std::vector<std::byte> BytesOf(const nb::bytes& bytes) {
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes.c_str());
  return {begin, begin + bytes.size()};
}
inline nb::bytes PythonBytes(std::span<const std::byte> bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace cairn::python
