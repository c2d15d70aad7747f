// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/card.h"

#include <cstdlib>
#include <string>

#include "base/core/check.h"
#include "cairn/gpu.h"

namespace cairn::testing {
namespace {

const char* Named() { return std::getenv("CAIRN_GPU_TEST_DEVICE"); }

}  // namespace

bool CardIsNamed() { return Named() != nullptr; }

Result<std::shared_ptr<gpu::Device>> OpenCard() {
  const std::string named = CardIsNamed() ? Named() : "0";
  const Result<Gpu> gpu = named == "simulated"
                              ? Gpu::Simulated(1)
                              : Gpu::Open({.ordinal = static_cast<uint32_t>(std::stoul(named))});
  if (gpu.ok()) return gpu->device();
  // No other call of CUDA has failed, and nothing crashed.
  if (CardIsNamed() || gpu.status().code() != StatusCode::kNotFound) {
    CheckFailed(gpu.status().ToString().c_str(), __FILE__, __LINE__);
  }
  return gpu.status();
}

}  // namespace cairn::testing
