// SPDX-License-Identifier: Apache-2.0
//
// exact. Scores of all chunks for the queries of a step, like shadow::ScoreChunks: a block for each
// tile of a pair's chunks, in which a warp takes one block of landmarks. Each lane has every 32nd
// channel, adds up its part of 32 dot products at a time (some chunks times some query heads) and
// then, through shared memory, all lanes' parts of one of them.
#pragma once

#include <cstdint>

#include "gpu/kernels/shadow_head.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct ScoreChunks {
  const ShadowHead* heads = nullptr;  // One per pair.
  const void* queries = nullptr;      // Rows of fp32 or of the dtype.
  float* scores = nullptr;            // [pair][query head][chunk]; minus infinity: not selectable.
  shadow::TileSum* sums = nullptr;    // [pair][query head][tile], dense.
  // In elements, from one pair to the next, one query head to the next.
  uint64_t query_pair_stride = 0, query_head_stride = 0;
  uint64_t score_stride = 0;  // Between query heads; pairs follow each other.
  float scale = 1.0F;
  uint32_t pairs = 0;
  uint32_t tiles = 0;  // Per pair: enough for the one with the most chunks.
  uint32_t group = 1;  // Query heads of a kv head.
  uint32_t channels = 0, landmark_bits = 4;
  bool fp16 = false;
  bool fp32_queries = false;

  // Query heads that are taken at a time.
  CAIRN_GPU uint32_t width() const { return group == 1 ? 1 : group <= 4 ? 4 : 8; }
  // Shared: the queries; the scores of the tile; of each warp 32 rows, one longer than needed so
  // that neither rows nor columns meet in a bank.
  static constexpr uint32_t kPartStride = kWarp + 1;
  CAIRN_GPU uint32_t scores_at() const { return width() * channels * 4; }
  CAIRN_GPU uint32_t parts_at() const { return scores_at() + width() * shadow::kTileChunks * 4; }
  CAIRN_GPU uint32_t shared_bytes(uint32_t warps) const {
    return parts_at() + warps * kWarp * kPartStride * 4;
  }
};

// Landmarks of one block: `rows` of them count; the first is chunk `first` of the tile. The rest of
// the block is read, too.
struct RowsToScore {
  const uint8_t* block = nullptr;
  uint32_t rows = 0, first = 0;
  uint32_t width = 0;  // Existing query heads; the others have queries of 0.
};

// The element of a landmark; with 16 bits `low` and `scale` are ignored.
template <uint32_t kBits, typename Lane>
CAIRN_GPU float LandmarkElement(const Lane& at, bool fp16, const uint8_t* row, uint32_t channel,
                                float low, float scale) {
  if constexpr (kBits == 16) {
    return Widened(fp16, at.template Load<uint16_t>(row + 2 * channel));
  } else if constexpr (kBits == 8) {
    return shadow::CodeValue(fp16, low, scale, row[channel]);
  } else {
    return shadow::CodeValue(fp16, low, scale, row[channel / 2] >> channel % 2 * 4 & 15);
  }
}

template <uint32_t kBits, uint32_t kWidth, typename Lane>
CAIRN_GPU void ScoreRows(const Lane& at, const ScoreChunks& k, const RowsToScore& r) {
  constexpr uint32_t kRows = kWarp / kWidth;
  const shadow::BlockLayout layout{k.channels, kBits};
  const uint8_t* const codes = r.block + layout.codes_at();
  const float* const queries = at.template Shared<float>(0);
  float* const scores = at.template Shared<float>(k.scores_at());
  float* const parts =
      at.template Shared<float>(k.parts_at() + at.warp() * kWarp * ScoreChunks::kPartStride * 4);
  for (uint32_t first = 0; first < r.rows; first += kRows) {
    float sum[kRows][kWidth];
    CAIRN_UNROLL
    for (uint32_t i = 0; i < kWarp; ++i) sum[i / kWidth][i % kWidth] = 0.0F;
    for (uint32_t c = at.lane(); c < k.channels; c += kWarp) {
      float low = 0.0F, scale = 0.0F;
      if constexpr (kBits != 16) {
        low = Widened(k.fp16, at.template Load<uint16_t>(r.block + 2 * c));
        scale = Widened(k.fp16, at.template Load<uint16_t>(r.block + layout.scales_at() + 2 * c));
      }
      const uint8_t* row = codes + first * layout.row_bytes();
      CAIRN_UNROLL
      for (uint32_t i = 0; i < kRows; ++i, row += layout.row_bytes()) {
        const float x = LandmarkElement<kBits>(at, k.fp16, row, c, low, scale);
        CAIRN_UNROLL
        for (uint32_t g = 0; g < kWidth; ++g) {
          sum[i][g] = sum[i][g] + queries[g * k.channels + c] * x;
        }
      }
    }
    at.SyncWarp();  // All have read the parts before.
    CAIRN_UNROLL
    for (uint32_t i = 0; i < kWarp; ++i) {
      parts[i * ScoreChunks::kPartStride + at.lane()] = sum[i / kWidth][i % kWidth];
    }
    at.SyncWarp();
    const float* const mine = parts + at.lane() * ScoreChunks::kPartStride;
    const float dot = shadow::AddLanes([mine](uint32_t lane) { return mine[lane]; });
    const uint32_t row = first + at.lane() / kWidth, g = at.lane() % kWidth;
    if (row < r.rows && g < r.width) {
      scores[g * shadow::kTileChunks + r.first + row] = k.scale * dot;
    }
  }
}

template <uint32_t kBits, typename Lane>
CAIRN_GPU void ScoreRowsOf(const Lane& at, const ScoreChunks& k, const RowsToScore& r) {
  switch (k.width()) {
    case 1: return ScoreRows<kBits, 1>(at, k, r);
    case 4: return ScoreRows<kBits, 4>(at, k, r);
    default: return ScoreRows<kBits, 8>(at, k, r);
  }
}

// A block of landmarks by each warp.
template <typename Lane>
CAIRN_GPU void ScoreTile(const Lane& at, const ScoreChunks& k, const ShadowHead& head,
                         uint32_t tile, uint32_t width) {
  constexpr uint32_t kBlocks = shadow::kTileChunks / shadow::kBlockRows;
  const uint32_t whole = head.chunks / shadow::kBlockRows;
  for (uint32_t i = at.warp(); i < kBlocks; i += at.threads() / kWarp) {
    const uint32_t block = tile * kBlocks + i;
    if (block > whole) return;
    RowsToScore r{nullptr, shadow::kBlockRows, i * shadow::kBlockRows, width};
    if (block == whole) {
      r.block = reinterpret_cast<const uint8_t*>(head.tail);
      r.rows = head.chunks % shadow::kBlockRows;
      ScoreRowsOf<16>(at, k, r);
      return;
    }
    const shadow::BlockLayout layout{k.channels, k.landmark_bits};
    r.block = head.landmarks + uint64_t{block} * layout.block_bytes();
    switch (k.landmark_bits) {
      case 4: ScoreRowsOf<4>(at, k, r); break;
      case 8: ScoreRowsOf<8>(at, k, r); break;
      default: ScoreRowsOf<16>(at, k, r); break;
    }
  }
}

// One warp for each query head: the tile's part of its softmax, and its scores to their final
// place.
template <typename Lane>
CAIRN_GPU void SumTile(const Lane& at, const ScoreChunks& k, const ShadowHead& head, uint32_t tile,
                       uint64_t query_head, uint32_t g) {
  constexpr uint32_t kRounds = shadow::kTileChunks / kWarp;
  const float* const scores = at.template Shared<float>(k.scores_at()) + g * shadow::kTileChunks;
  const uint32_t first = tile * shadow::kTileChunks;
  float* const into = k.scores + query_head * k.score_stride + first;
  float mine[kRounds], max = -shadow::kInfinity;
  CAIRN_UNROLL
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t i = round * kWarp + at.lane();
    mine[round] = -shadow::kInfinity;
    if (first + i < head.chunks) {
      if (!shadow::IsAlways(head.always, first + i)) mine[round] = scores[i];
      into[i] = mine[round];
    }
    max = shadow::Max(max, mine[round]);
  }
  max = WarpMax(at, max);
  float sum = 0.0F;
  CAIRN_UNROLL
  for (uint32_t round = 0; round < kRounds; ++round) sum = sum + shadow::Exp(mine[round] - max);
  sum = WarpAdd(at, sum);
  if (at.lane() == 0) k.sums[query_head * k.tiles + tile] = {max, sum};
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const ScoreChunks& k) {
  const uint32_t pair = at.block() / k.tiles, tile = at.block() % k.tiles;
  if (pair >= k.pairs) return;
  const ShadowHead& head = k.heads[pair];
  if (tile >= shadow::TileCount(head.chunks)) return;
  float* const queries = at.template Shared<float>(0);
  for (uint32_t slice = 0; slice < k.group; slice += k.width()) {
    const uint32_t width = k.group - slice < k.width() ? k.group - slice : k.width();
    for (uint32_t i = at.thread(); i < k.width() * k.channels; i += at.threads()) {
      const uint32_t g = i / k.channels, c = i % k.channels;
      const uint64_t element = pair * k.query_pair_stride + (slice + g) * k.query_head_stride + c;
      queries[i] = g >= width ? 0.0F
                   : k.fp32_queries
                       ? static_cast<const float*>(k.queries)[element]
                       : Widened(k.fp16, static_cast<const uint16_t*>(k.queries)[element]);
    }
    at.SyncBlock();
    ScoreTile(at, k, head, tile, width);
    at.SyncBlock();
    for (uint32_t g = at.warp(); g < width; g += at.threads() / kWarp) {
      SumTile(at, k, head, tile, uint64_t{pair} * k.group + slice + g, g);
    }
  }
}

}  // namespace cairn::gpu
