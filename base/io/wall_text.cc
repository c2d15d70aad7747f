// SPDX-License-Identifier: Apache-2.0
#include "base/io/wall_text.h"

#include <ctime>

#include "base/core/check.h"

namespace cairn::io {

std::string WallText(uint64_t wall_ns) {
  const auto seconds = static_cast<time_t>(wall_ns / 1'000'000'000);
  tm parts{};
  CAIRN_CHECK(gmtime_r(&seconds, &parts) != nullptr);  // 64 bits of nanoseconds end in 2554.
  char text[64];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H-%M-%SZ", &parts);
  return {text, length};
}

}  // namespace cairn::io
