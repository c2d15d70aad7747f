// SPDX-License-Identifier: Apache-2.0
#include "gpu/sim_kernels.h"

#include <cstring>
#include <type_traits>

#include "base/core/check.h"

namespace cairn::gpu {
namespace {

template <typename K>
void RunOne(SimGrid& grid, const LaunchShape& shape, std::span<const std::byte> arguments) {
  static_assert(std::is_trivially_copyable_v<K>);
  CAIRN_CHECK(arguments.size() == sizeof(K));
  K k;
  std::memcpy(&k, arguments.data(), sizeof(k));
  grid.Run(shape, [&k](const SimLane& lane) { gpu::Run(lane, k); });
}

}  // namespace

void RunOnHost(SimGrid& grid, Kernel kernel, const LaunchShape& shape,
               std::span<const std::byte> arguments) {
  switch (kernel) {
#define CAIRN_RUN_KERNEL(name) \
  case Kernel::k##name: return RunOne<name>(grid, shape, arguments);
    CAIRN_EACH_KERNEL(CAIRN_RUN_KERNEL)
#undef CAIRN_RUN_KERNEL
  }
  CAIRN_CHECK(!"a kernel that there is");
}

}  // namespace cairn::gpu
