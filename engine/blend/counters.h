// SPDX-License-Identifier: Apache-2.0
//
// What plans and their restores count. They only grow.
#pragma once

#include <atomic>
#include <cstdint>

namespace cairn::engine {

struct BlendCounters {
  std::atomic<uint64_t> plans{0};
  std::atomic<uint64_t> prefix_tokens{0}, full_tokens{0}, partial_tokens{0}, unknown_tokens{0};
  std::atomic<uint64_t> computed_tokens{0};
  std::atomic<uint64_t> turned_bytes{0};
  std::atomic<uint64_t> failed_checks{0};
};

}  // namespace cairn::engine
