// SPDX-License-Identifier: Apache-2.0
//
// Events as a caller's own program has them: made beside the device, of CUDA on a card, and given
// to calls by their handles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/device.h"

namespace cairn::testing {

class CallersEvents {
 public:
  CallersEvents(gpu::Device* device, size_t count);
  ~CallersEvents();
  CallersEvents(const CallersEvents&) = delete;
  CallersEvents& operator=(const CallersEvents&) = delete;

  const std::vector<uintptr_t>& handles() const { return handles_; }
  gpu::Event operator[](size_t index) const { return adopted_[index]; }

 private:
  gpu::Device& device_;
  std::vector<uintptr_t> handles_;
  std::vector<gpu::Event> own_, adopted_;  // The first of a SimDevice alone.
};

}  // namespace cairn::testing
