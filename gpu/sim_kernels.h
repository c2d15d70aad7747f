// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel by number on a SimGrid.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/kernels.h"
#include "gpu/sim_grid.h"

namespace cairn::gpu {

// `arguments` are the bytes of the kernel's struct.
void RunOnHost(SimGrid& grid, Kernel kernel, const LaunchShape& shape,
               std::span<const std::byte> arguments);

template <typename K>
void RunOnHost(SimGrid& grid, const K& arguments) {
  RunOnHost(grid, KernelOf<K>::kNumber, ShapeOf(arguments),
            std::as_bytes(std::span(&arguments, 1)));
}

}  // namespace cairn::gpu
