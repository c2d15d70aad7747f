// SPDX-License-Identifier: Apache-2.0
//
// GPUs by the names that the tools take.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "cairn/gpu.h"

namespace cairn {

// "cuda:N", as CUDA counts them, or "simulated". kInvalidArgument for other names, kNotFound where
// there is no such card.
inline Result<Gpu> OpenGpu(const std::string& name) {
  if (name == "simulated") return Gpu::Simulated(/*seed=*/1);
  constexpr std::string_view kCuda = "cuda:";
  const char* const end = name.data() + name.size();
  uint32_t ordinal = 0;
  if (!name.starts_with(kCuda) || name.size() == kCuda.size() ||
      std::from_chars(name.data() + kCuda.size(), end, ordinal).ptr != end) {
    return Status(StatusCode::kInvalidArgument, "device: cuda:N or simulated, not " + name);
  }
  return Gpu::Open({.ordinal = ordinal});
}

}  // namespace cairn
