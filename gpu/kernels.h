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
#include "gpu/kernels/rebuild_keys.h"
#include "gpu/kernels/rebuild_low_rank.h"
#include "gpu/kernels/resolve_slots.h"
#include "gpu/kernels/rotate_keys.h"
#include "gpu/kernels/score_chunks.h"
#include "gpu/kernels/select_chunks.h"

namespace cairn::gpu {

// X(name): a struct of arguments, trivially copyable, with Run(lane, arguments).
#define CAIRN_EACH_KERNEL(X) \
  X(DecodeScatter)           \
  X(GatherSave)              \
  X(GatherStep)              \
  X(EndStep)                 \
  X(CheckTable)              \
  X(ResolveSlots)            \
  X(GatherPieces)            \
  X(ScoreChunks)             \
  X(SelectChunks)            \
  X(RebuildKeys)             \
  X(RebuildLowRank)          \
  X(RotateKeys)

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
// This many blocks run on a processor at once, which leaves 80 registers to a thread: kv64 hides
// its waits behind other warps.
inline constexpr uint32_t kBlocksOfProcessor = 6;
inline constexpr uint32_t kWarpsOfProcessor = kBlocksOfProcessor * kBlockThreads / kWarp;

// Compilation settings of a kernel: the threads of its blocks, and how many blocks run on a
// processor at once. score_chunks has 32 sums per thread and its factors; select_chunks has a block
// per pair.
template <typename K>
inline constexpr uint32_t kThreadsOf = kBlockThreads;
template <>
inline constexpr uint32_t kThreadsOf<SelectChunks> = SelectChunks::kThreads;
template <typename K>
inline constexpr uint32_t kBlocksOf = kBlocksOfProcessor;
template <>
inline constexpr uint32_t kBlocksOf<ScoreChunks> = 4;
template <>
inline constexpr uint32_t kBlocksOf<SelectChunks> = 2;

// The shape of a launch: a warp for each frame, each strip, each piece, each chunk that is rebuilt,
// each frame's rows that are turned;
// a thread for each entry; a block for each row of slots, each tile, each pair, each chunk of low
// rank.
LaunchShape ShapeOf(const DecodeScatter& k);
LaunchShape ShapeOf(const GatherSave& k);
LaunchShape ShapeOf(const GatherStep& k);
LaunchShape ShapeOf(const EndStep& k);
LaunchShape ShapeOf(const CheckTable& k);
LaunchShape ShapeOf(const ResolveSlots& k);
LaunchShape ShapeOf(const GatherPieces& k);
LaunchShape ShapeOf(const ScoreChunks& k);
LaunchShape ShapeOf(const SelectChunks& k);
LaunchShape ShapeOf(const RebuildKeys& k);
LaunchShape ShapeOf(const RebuildLowRank& k);
LaunchShape ShapeOf(const RotateKeys& k);

}  // namespace cairn::gpu
