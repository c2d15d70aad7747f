// SPDX-License-Identifier: Apache-2.0
//
// The kernels' code on a CUDA device, by number.
#pragma once

#include "gpu/kernels.h"

namespace cairn::gpu {

// The function for cudaLaunchKernel; its one argument is the kernel's struct.
const void* CudaFunctionOf(Kernel kernel);

}  // namespace cairn::gpu
