// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/callers_events.h"

#include "base/core/check.h"
#include "gpu/sim_device.h"
#if CAIRN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace cairn::testing {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) CheckFailed(result.status().ToString().c_str(), __FILE__, __LINE__);
  return *result;
}

}  // namespace

CallersEvents::CallersEvents(gpu::Device* device, size_t count) : device_(*device) {
  const bool simulated = dynamic_cast<gpu::SimDevice*>(device) != nullptr;
  for (size_t i = 0; i < count; ++i) {
    // On a card this call makes it the thread's current one.
    const gpu::Event event = Must(device_.NewEvent());
    if (simulated) {
      own_.push_back(event);
      handles_.push_back(gpu::SimDevice::HandleOf(event));
    } else {
      device_.Return(event);
#if CAIRN_WITH_CUDA
      cudaEvent_t handle = nullptr;
      CAIRN_CHECK(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming) == cudaSuccess);
      handles_.push_back(reinterpret_cast<uintptr_t>(handle));
#endif
    }
    adopted_.push_back(Must(device_.AdoptEvent(handles_[i])));
  }
}

CallersEvents::~CallersEvents() {
  for (const gpu::Event event : adopted_) device_.Return(event);
  for (const gpu::Event event : own_) device_.Return(event);
#if CAIRN_WITH_CUDA
  if (!own_.empty()) return;
  for (const uintptr_t handle : handles_) {
    static_cast<void>(cudaEventDestroy(reinterpret_cast<cudaEvent_t>(handle)));
  }
#endif
}

}  // namespace cairn::testing
