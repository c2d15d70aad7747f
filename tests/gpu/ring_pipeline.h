// SPDX-License-Identifier: Apache-2.0
//
// A restore's use of a device, in small: windows go through a pinned ring and a ring on the device,
// on two streams, and come back. Any of its waits can be left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace cairn::testing {

enum class Left : uint8_t {
  kNone,
  kPinnedSlot,  // A pinned slot is written before the copy from it has run.
  kCopied,      // A window is worked on before its copy has ended.
  kDeviceSlot,  // A window is copied over one that is still worked on.
  kDone,        // Results are read before they are complete.
};
inline constexpr Left kAllLeft[] = {Left::kPinnedSlot, Left::kCopied, Left::kDeviceSlot,
                                    Left::kDone};

// Ok: all calls were. `result`: what came back; `expected`: what should have.
Status RunRingPipeline(gpu::Device& device, Left left, uint64_t seed,
                       std::vector<std::byte>* result, std::vector<std::byte>* expected);

}  // namespace cairn::testing
