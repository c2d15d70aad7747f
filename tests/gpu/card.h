// SPDX-License-Identifier: Apache-2.0
//
// The card that tests run on: CUDA device 0, or the one that CAIRN_GPU_TEST_DEVICE names. Of
// "simulated" it is a simulated device, which proves those tests themselves.
#pragma once

#include <memory>

#include "gpu/device.h"

namespace cairn::testing {

// A card was named: tests that can use it instead of a simulated device do.
bool CardIsNamed();

// kNotFound, with the reason, where there is no card, no driver, or no CUDA in this build. Of a
// card that was named this ends the program: then no test is left out unseen.
Result<std::shared_ptr<gpu::Device>> OpenCard();

}  // namespace cairn::testing
