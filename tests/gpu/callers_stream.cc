// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/callers_stream.h"

#include "base/core/check.h"
#include "gpu/sim_device.h"
#if CAIRN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace cairn::testing {

CallersStream::CallersStream(gpu::Device* device)
    : device_(*device), simulated_(dynamic_cast<gpu::SimDevice*>(device) != nullptr) {
  if (simulated_) {
    const auto stream = device_.NewStream(gpu::Priority::kHigh);
    CAIRN_CHECK(stream.ok());
    own_ = *stream;
    handle_ = gpu::SimDevice::HandleOf(own_);
  } else {
#if CAIRN_WITH_CUDA
    cudaStream_t stream = nullptr;
    CAIRN_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    handle_ = reinterpret_cast<uintptr_t>(stream);
#endif
  }
  const auto adopted = device_.AdoptStream(handle_);
  CAIRN_CHECK(adopted.ok());
  adopted_ = *adopted;
}

CallersStream::~CallersStream() {
  device_.Return(adopted_);
  if (simulated_) {
    device_.Return(own_);
    return;
  }
#if CAIRN_WITH_CUDA
  if (graph_ != nullptr) {
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
  }
  static_cast<void>(cudaStreamDestroy(reinterpret_cast<cudaStream_t>(handle_)));
#endif
}

void CallersStream::Capture(const std::function<void()>& enqueue) {
  if (auto* const host = dynamic_cast<gpu::SimDevice*>(&device_)) {
    host->BeginCapture(adopted_);
    enqueue();
    host_graph_ = host->EndCapture(adopted_);
    return;
  }
#if CAIRN_WITH_CUDA
  const auto stream = reinterpret_cast<cudaStream_t>(handle_);
  CAIRN_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  enqueue();
  cudaGraph_t graph = nullptr;
  CAIRN_CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t launched = nullptr;
  CAIRN_CHECK(cudaGraphInstantiate(&launched, graph, 0) == cudaSuccess);
  static_cast<void>(cudaGraphDestroy(graph));
  graph_ = launched;
#endif
}

Status CallersStream::Launch() {
  if (auto* const host = dynamic_cast<gpu::SimDevice*>(&device_)) {
    return host->LaunchGraph(host_graph_, adopted_);
  }
#if CAIRN_WITH_CUDA
  CAIRN_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_),
                              reinterpret_cast<cudaStream_t>(handle_)) == cudaSuccess);
#endif
  return Status::Ok();
}

}  // namespace cairn::testing
