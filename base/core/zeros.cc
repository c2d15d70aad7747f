// SPDX-License-Identifier: Apache-2.0
#include "base/core/zeros.h"

namespace cairn {

std::span<const std::byte> ZeroBytes() {
  alignas(4096) static std::byte zeros[kZeroBytes];  // Not const: it would lie in the file then.
  return zeros;
}

}  // namespace cairn
