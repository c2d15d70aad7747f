// SPDX-License-Identifier: Apache-2.0
//
// A GPU that has done everything at once, and does nothing: what the host pays for its calls is
// measured beside it. Memory is the host's, and nothing is written there.
#pragma once

#include <memory>

#include "gpu/device.h"

namespace cairn::bench {

std::shared_ptr<gpu::Device> MakeIdleDevice();

}  // namespace cairn::bench
