// SPDX-License-Identifier: Apache-2.0
//
// The kernels by number: what a device can launch. Every device has all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/check_table.h"
#include "gpu/kernels/decode_scatter.h"
#include "gpu/kernels/gather_pieces.h"
#include "gpu/kernels/gather_save.h"
#include "gpu/kernels/gather_step.h"
#include "gpu/kernels/resolve_slots.h"

namespace cairn::gpu {

// X(name): a struct of arguments, trivially copyable, with Run(lane, arguments).
#define CAIRN_EACH_KERNEL(X) \
  X(DecodeScatter)           \
  X(GatherSave)              \
  X(GatherStep)              \
  X(EndStep)                 \
  X(CheckTable)              \
  X(ResolveSlots)            \
  X(GatherPieces)

enum class Kernel : uint16_t {
#define CAIRN_KERNEL_NUMBER(name) k##name,
  CAIRN_EACH_KERNEL(CAIRN_KERNEL_NUMBER)
#undef CAIRN_KERNEL_NUMBER
};

template <typename Arguments>
struct KernelOf;
#define CAIRN_KERNEL_OF(name)                          \
  template <>                                          \
  struct KernelOf<name> {                              \
    static constexpr Kernel kNumber = Kernel::k##name; \
  };
CAIRN_EACH_KERNEL(CAIRN_KERNEL_OF)
#undef CAIRN_KERNEL_OF

// Threads of a block, for launches of a warp for each of `count` things.
inline constexpr uint32_t kBlockThreads = 128;
// So many of these blocks run on a processor at once, which leaves 80 registers to a thread: kv64
// hides what it waits for behind other warps.
inline constexpr uint32_t kBlocksOfProcessor = 6;
inline constexpr uint32_t kWarpsOfProcessor = kBlocksOfProcessor * kBlockThreads / kWarp;

// The shape of a launch: a warp for each frame, each strip, each piece; a thread for each entry; a
// block for each row of slots.
LaunchShape ShapeOf(const DecodeScatter& k);
LaunchShape ShapeOf(const GatherSave& k);
LaunchShape ShapeOf(const GatherStep& k);
LaunchShape ShapeOf(const EndStep& k);
LaunchShape ShapeOf(const CheckTable& k);
LaunchShape ShapeOf(const ResolveSlots& k);
LaunchShape ShapeOf(const GatherPieces& k);

}  // namespace cairn::gpu
