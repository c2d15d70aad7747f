// SPDX-License-Identifier: Apache-2.0
//
// Zeros to write: one block of them for the whole process, aligned for direct I/O. Nothing ever
// writes to it, so it takes no memory: every page of it is the kernel's page of zeros.
#pragma once

#include <cstddef>
#include <span>

namespace cairn {

inline constexpr size_t kZeroBytes = size_t{1} << 20;

std::span<const std::byte> ZeroBytes();

}  // namespace cairn
