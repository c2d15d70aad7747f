// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cairn::io {

// The size of this kernel's pages: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64. Protection and
// advice cover whole pages.
size_t PageBytes();

}  // namespace cairn::io
