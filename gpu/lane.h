// SPDX-License-Identifier: Apache-2.0
//
// A kernel's view of the machine: one lane of a warp of 32, in a block, in a grid. A kernel is a
// function template over the lane, without a word of CUDA, so that one source has two executions:
// nvcc compiles it for DeviceLane (gpu/cuda/device_lane.cuh), the host's compiler for SimLane
// (gpu/sim_grid.h). The first line of each kernel names its class:
//
//   exact      integers, copies, and fp32 in the order written: the same bits on both
//   tolerance  within a stated bound (none yet)
//
// A lane has
//   thread(), threads(), block()     in the block, of the block, of the grid
//   lane(), warp()                   in the warp, in the block
//   Shared<T>(offset)                the block's shared memory: bytes from `offset` on
//   SyncWarp(), SyncBlock()          order memory among the threads of the warp, of the block
//   Ballot(vote)                     bit i: the vote of lane i
//   Ballots(votes)                   of several votes at a time: Votes<n>
//   Shuffle(value, from)             the value of lane `from` modulo 32
//   AtomicOr, AtomicMin,
//   AtomicAdd, AtomicCas             relaxed; they return what was there
//   Flag(byte)                       makes it 1; several may at a time, and the host look meanwhile
//   Load<T>(at), Store(at, value)    of memory that is aligned to T
//   PopCount(x), BitWidth(x)
//
// All 32 lanes of a warp take part in its votes, shuffles and syncs, which order no memory but for
// the syncs. No kernel waits for another block.
#pragma once

#include <cstdint>

#include "base/core/gpu_code.h"

namespace cairn::gpu {

inline constexpr uint32_t kWarp = 32;

struct alignas(16) Bytes16 {
  uint32_t word[4];
};

template <uint32_t kCount>
struct Votes {
  uint32_t of[kCount];
};

// The size of a launch.
struct LaunchShape {
  uint32_t blocks = 1;
  uint32_t threads = kWarp;  // Per block; a multiple of 32, at most kMaxThreads.
  uint32_t shared_bytes = 0;
};
inline constexpr uint32_t kMaxThreads = 1024;

// The bits of the lanes before this one.
CAIRN_GPU uint32_t Below(uint32_t lane) { return (1u << lane) - 1; }

}  // namespace cairn::gpu
