// SPDX-License-Identifier: Apache-2.0
//
// A stream as a caller's own program has it, and a graph that is captured from it and launched
// again and again: of CUDA on a card.
#pragma once

#include <cstdint>
#include <functional>

#include "gpu/device.h"

namespace cairn::testing {

class CallersStream {
 public:
  explicit CallersStream(gpu::Device* device);
  ~CallersStream();
  CallersStream(const CallersStream&) = delete;
  CallersStream& operator=(const CallersStream&) = delete;

  uintptr_t handle() const { return handle_; }
  gpu::Stream stream() const { return adopted_; }
  // The work that `enqueue` puts into the stream becomes the graph.
  void Capture(const std::function<void()>& enqueue);
  Status Launch();

 private:
  gpu::Device& device_;
  const bool simulated_;
  uintptr_t handle_ = 0;
  gpu::Stream own_, adopted_;  // The first of a SimDevice alone.
  uint64_t host_graph_ = 0;
  void* graph_ = nullptr;  // A cudaGraphExec_t.
};

}  // namespace cairn::testing
