// SPDX-License-Identifier: Apache-2.0
//
// A CUDA device as in gpu/device.h. The runtime is linked statically and finds the driver at its
// first use: a program with it starts also without a driver, and reports that.
#pragma once

#include <memory>

#include "base/io/world.h"
#include "gpu/device.h"

namespace cairn::gpu {

// kNotFound when there is no driver, or no device of this ordinal; kIoError names the call and what
// CUDA says. The device's primary context, which the caller's program shares.
Result<std::unique_ptr<Device>> OpenCudaDevice(std::shared_ptr<io::Scheduler> scheduler,
                                               int ordinal);

}  // namespace cairn::gpu
