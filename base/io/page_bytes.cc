// SPDX-License-Identifier: Apache-2.0
#include "base/io/page_bytes.h"

#include <unistd.h>

namespace cairn::io {

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace cairn::io
