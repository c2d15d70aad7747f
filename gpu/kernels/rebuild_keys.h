// SPDX-License-Identifier: Apache-2.0
//
// exact. Keys of selected chunks from their int8 or int4 codes, as shadow::RebuildChunk has them,
// into slots of a buffer: a warp for each chunk.
#pragma once

#include <cstdint>

#include "gpu/kernels/shadow_head.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct RebuildKeys {
  const ShadowHead* heads = nullptr;  // One per pair.
  const uint32_t* chunks = nullptr;   // `chunk_stride` per pair.
  const uint32_t* counts = nullptr;   // Chunks in use, per pair.
  // Where chunk i of a pair goes, with the same stride. Below 0: nowhere.
  const int32_t* slots = nullptr;
  // For each pair: chunks before this one are in their slots already. Null: none.
  const uint32_t* first_new = nullptr;
  // Row t of slot s: `into` + pair * pair_stride + (s * chunk_tokens + t) * row_stride. On a
  // multiple of 4 bytes, as the strides are.
  uint16_t* into = nullptr;
  uint64_t pair_stride = 0, row_stride = 0;  // In elements.
  uint64_t chunk_stride = 0;
  uint32_t pairs = 0;
  uint32_t most = 0;  // Chunks of a pair: enough for all counts.
  uint32_t chunk_tokens = 4, channels = 0;
  uint32_t key_bits = 4;  // 4 or 8.
  bool fp16 = false;
};

// Each lane has two channels next to each other.
template <uint32_t kBits, typename Lane>
CAIRN_GPU void RebuildRows(const Lane& at, const RebuildKeys& k, const uint8_t* block, uint32_t row,
                           uint16_t* into) {
  const shadow::BlockLayout layout{k.channels, kBits};
  const uint8_t* const codes = block + layout.codes_at() + row * layout.row_bytes();
  for (uint32_t c = 2 * at.lane(); c < k.channels; c += 2 * kWarp) {
    const auto lows = at.template Load<uint32_t>(block + 2 * c);
    const auto scales = at.template Load<uint32_t>(block + layout.scales_at() + 2 * c);
    const float low[2] = {Widened(k.fp16, static_cast<uint16_t>(lows)),
                          Widened(k.fp16, static_cast<uint16_t>(lows >> 16))};
    const float scale[2] = {Widened(k.fp16, static_cast<uint16_t>(scales)),
                            Widened(k.fp16, static_cast<uint16_t>(scales >> 16))};
    for (uint32_t t = 0; t < k.chunk_tokens; ++t) {
      const uint8_t* const of_row = codes + t * layout.row_bytes() + c * kBits / 8;
      const uint32_t both = kBits == 4 ? of_row[0] : at.template Load<uint16_t>(of_row);
      uint32_t elements = 0;
      CAIRN_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t code = both >> i * kBits & ((1u << kBits) - 1);
        const float value = shadow::CodeValue(k.fp16, low[i], scale[i], code);
        elements |= uint32_t{Narrowed(k.fp16, value)} << 16 * i;
      }
      at.Store(into + t * k.row_stride + c, elements);
    }
  }
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const RebuildKeys& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  const uint32_t pair = index / k.most, i = index % k.most;
  if (pair >= k.pairs || i >= k.counts[pair]) return;
  if (k.first_new != nullptr && i < k.first_new[pair]) return;
  const int32_t slot = k.slots[pair * k.chunk_stride + i];
  if (slot < 0) return;
  const uint64_t position = uint64_t{k.chunks[pair * k.chunk_stride + i]} * k.chunk_tokens;
  const auto row = static_cast<uint32_t>(position % shadow::kBlockRows);
  const shadow::BlockLayout layout{k.channels, k.key_bits};
  const uint8_t* const block =
      k.heads[pair].keys + position / shadow::kBlockRows * layout.block_bytes();
  uint16_t* const into =
      k.into + pair * k.pair_stride + static_cast<uint64_t>(slot) * k.chunk_tokens * k.row_stride;
  if (k.key_bits == 4) {
    RebuildRows<4>(at, k, block, row, into);
  } else {
    RebuildRows<8>(at, k, block, row, into);
  }
}

}  // namespace cairn::gpu
