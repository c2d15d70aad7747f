// SPDX-License-Identifier: Apache-2.0
//
// A GPU whose work is always done at once, and that does nothing: to measure the host's cost of its
// calls. Memory is the host's, and nothing is written there.
#pragma once

#include <memory>

#include "gpu/device.h"

namespace cairn::bench {

std::shared_ptr<gpu::Device> MakeIdleDevice();

}  // namespace cairn::bench
