// SPDX-License-Identifier: Apache-2.0
//
// The shadow of one kv head of a layer of one sequence, as kernels read it, and sums of a warp in
// the order of base/shadow. Launches are for many sequences and heads, called pairs here.
#pragma once

#include <cstdint>

#include "base/shadow/shadow_math.h"
#include "gpu/lane.h"

namespace cairn::gpu {

// A table of these lies in device memory, an entry a pair. Memory that it points to is aligned to
// 16 bytes.
struct ShadowHead {
  const uint8_t* landmarks = nullptr;  // chunks / 64 whole blocks (shadow::BlockLayout).
  const uint16_t* tail = nullptr;      // Those behind, rows of the dtype; room for 64.
  const uint32_t* always = nullptr;    // shadow::IsAlways.
  const uint8_t* keys = nullptr;       // Blocks of 64 keys; int8 and int4 alone.
  uint32_t chunks = 0;                 // May be 0: nothing is selected then.
  uint32_t budget = 0;                 // Chunks to select.
};

template <typename Lane>
CAIRN_GPU float WarpMax(const Lane& at, float mine) {
  CAIRN_UNROLL
  for (uint32_t apart = kWarp / 2; apart > 0; apart /= 2) {
    mine = shadow::Max(mine, at.Shuffle(mine, at.lane() ^ apart));
  }
  return mine;
}

// shadow::AddLanes over the lanes' values.
template <typename Lane>
CAIRN_GPU float WarpAdd(const Lane& at, float mine) {
  CAIRN_UNROLL
  for (uint32_t apart = kWarp / 2; apart > 0; apart /= 2) {
    mine = mine + at.Shuffle(mine, at.lane() ^ apart);
  }
  return mine;
}

}  // namespace cairn::gpu
