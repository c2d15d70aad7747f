// SPDX-License-Identifier: Apache-2.0
//
// exact. Keys of selected chunks from coefficients of vectors that the heads of a layer share, like
// shadow::RebuildRow, turned to their positions like Rotation::Turn: a block for each chunk. Each
// thread computes elements alone; pairs that turn together meet in shared memory.
#pragma once

#include <cstdint>

#include "base/codec/float16.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct RebuildLowRank {
  const uint16_t* coefficients = nullptr;  // [token][rank].
  const uint16_t* vectors = nullptr;       // [rank][pairs * channels]: pairs are heads of a layer.
  const float* turns = nullptr;            // Cosine and sine, [token][turned].
  const uint32_t* chunks = nullptr;        // `chunk_stride` per pair.
  const uint32_t* counts = nullptr;        // Chunks in use, per pair.
  const int32_t* slots = nullptr;  // Where each goes, with the same stride. Below 0: nowhere.
  // Row t of slot s: into + pair * pair_stride + (s * chunk_tokens + t) * channels.
  uint16_t* into = nullptr;
  uint64_t pair_stride = 0, chunk_stride = 0;
  uint32_t pairs = 0;
  uint32_t most = 0;  // Chunks of a pair: enough for all counts.
  uint32_t chunk_tokens = 4, channels = 0, rank = 0;
  // Pairs of elements that turn, from element `window` on: i and i + turned, or 2i and 2i + 1.
  uint32_t turned = 0, window = 0;
  bool adjacent = false;
  bool fp16 = false;

  CAIRN_GPU uint32_t shared_bytes() const { return chunk_tokens * channels * 2; }
};

// Element `c` of a row, turned by the row's own turns.
CAIRN_GPU uint16_t TurnedElement(const RebuildLowRank& k, const uint16_t* row, uint32_t c,
                                 const float* turns) {
  if (c < k.window || c >= k.window + 2 * k.turned) return row[c];
  const uint32_t at = c - k.window;
  const uint32_t pair = k.adjacent ? at / 2 : at % k.turned;
  const bool is_second = k.adjacent ? at % 2 != 0 : at >= k.turned;
  const float cos = turns[2 * pair], sin = turns[2 * pair + 1];
  if (cos == 1.0F && sin == 0.0F) return row[c];
  const uint16_t* const first = row + k.window + (k.adjacent ? 2 * pair : pair);
  const float x = Widened(k.fp16, first[0]);
  const float y = Widened(k.fp16, first[k.adjacent ? 1 : k.turned]);
  return Narrowed(k.fp16, is_second ? y * cos + x * sin : x * cos - y * sin);
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const RebuildLowRank& k) {
  const uint32_t pair = at.block() / k.most, i = at.block() % k.most;
  if (pair >= k.pairs || i >= k.counts[pair]) return;
  const int32_t slot = k.slots[pair * k.chunk_stride + i];
  if (slot < 0) return;
  const uint64_t position = uint64_t{k.chunks[pair * k.chunk_stride + i]} * k.chunk_tokens;
  const uint32_t all_channels = k.pairs * k.channels;
  uint16_t* const rows = at.template Shared<uint16_t>(0);
  for (uint32_t e = at.thread(); e < k.chunk_tokens * k.channels; e += at.threads()) {
    const uint16_t* const u = k.coefficients + (position + e / k.channels) * k.rank;
    const uint16_t* v = k.vectors + uint64_t{pair} * k.channels + e % k.channels;
    float sum = 0.0F;
    for (uint32_t r = 0; r < k.rank; ++r, v += all_channels) {
      sum = sum + Widened(k.fp16, u[r]) * Widened(k.fp16, *v);
    }
    rows[e] = Narrowed(k.fp16, sum);
  }
  at.SyncBlock();
  uint16_t* const into =
      k.into + pair * k.pair_stride + static_cast<uint64_t>(slot) * k.chunk_tokens * k.channels;
  for (uint32_t e = at.thread(); e < k.chunk_tokens * k.channels; e += at.threads()) {
    const uint32_t t = e / k.channels;
    into[e] = TurnedElement(k, rows + t * k.channels, e % k.channels,
                            k.turns + (position + t) * 2 * k.turned);
  }
}

}  // namespace cairn::gpu
