// SPDX-License-Identifier: Apache-2.0
//
// The exact kernels: no fused multiply and add.
#include "gpu/cuda/kernels.h"

#include "gpu/cuda/device_lane.cuh"
#include "gpu/kernels.h"

namespace cairn::gpu {
namespace {

template <typename K>
__global__ void __launch_bounds__(kThreadsOf<K>, kBlocksOf<K>) Launched(const K k) {
  Run(DeviceLane{}, k);
}

}  // namespace

const void* CudaFunctionOf(Kernel kernel) {
  switch (kernel) {
#define CAIRN_CUDA_FUNCTION(name) \
  case Kernel::k##name: return reinterpret_cast<const void*>(&Launched<name>);
    CAIRN_EACH_KERNEL(CAIRN_CUDA_FUNCTION)
#undef CAIRN_CUDA_FUNCTION
  }
  return nullptr;
}

}  // namespace cairn::gpu
