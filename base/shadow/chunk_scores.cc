// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/chunk_scores.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/shadow/block_quantizer.h"
#include "base/shadow/row_math.h"

namespace cairn::shadow {
namespace {

TileSum SumTile(std::span<const float> scores) {
  TileSum tile;
  for (const float score : scores) tile.max = Max(tile.max, score);
  tile.sum = WarpSum(static_cast<uint32_t>(scores.size()),
                     [&](uint32_t i) { return Exp(scores[i] - tile.max); });
  return tile;
}

float LogSum(std::span<const TileSum> tiles) {
  float max = -kInfinity;
  for (const TileSum& tile : tiles) max = Max(max, tile.max);
  const float sum = WarpSum(static_cast<uint32_t>(tiles.size()),
                            [&](uint32_t t) { return tiles[t].sum * Exp(tiles[t].max - max); });
  return max + Log(sum);
}

}  // namespace

void StoredLandmarks::Read(uint32_t chunk, std::span<uint16_t> row) const {
  const uint32_t block = chunk / kBlockRows, in_block = chunk % kBlockRows;
  if (block == chunks / kBlockRows) {
    const auto from = tail.subspan(size_t{in_block} * layout.channels, layout.channels);
    std::copy(from.begin(), from.end(), row.begin());
    return;
  }
  const size_t bytes = layout.block_bytes();
  ReadBlock(layout, fp16, blocks.subspan(block * bytes, bytes), in_block, row);
}

ChunkScores SumScores(std::vector<float> score, uint32_t chunks, uint32_t group) {
  CAIRN_CHECK(score.size() == size_t{group} * chunks);
  ChunkScores scores{.chunks = chunks,
                     .group = group,
                     .score = std::move(score),
                     .tiles = {},
                     .log_sum = {},
                     .best = std::vector<float>(chunks, -kInfinity)};
  for (size_t g = 0; g < group; ++g) {
    const std::span<const float> all(scores.score.data() + g * chunks, chunks);
    for (size_t first = 0; first < chunks; first += kTileChunks) {
      scores.tiles.push_back(
          SumTile(all.subspan(first, std::min<size_t>(kTileChunks, chunks - first))));
    }
    scores.log_sum.push_back(LogSum(std::span(scores.tiles).last(TileCount(chunks))));
    for (uint32_t i = 0; i < chunks; ++i) {
      scores.best[i] = Max(scores.best[i], all[i] - scores.log_sum[g]);
    }
  }
  return scores;
}

ChunkScores ScoreChunks(const StoredLandmarks& landmarks, std::span<const float> queries,
                        float scale) {
  const uint32_t channels = landmarks.layout.channels, chunks = landmarks.chunks;
  const auto group = static_cast<uint32_t>(queries.size() / channels);
  CAIRN_CHECK(queries.size() == size_t{group} * channels);
  std::vector<float> score(size_t{group} * chunks, -kInfinity);
  std::vector<uint16_t> row(channels);
  std::vector<float> landmark(channels);
  for (uint32_t i = 0; i < chunks; ++i) {
    if (IsAlways(landmarks.always.data(), i)) continue;
    landmarks.Read(i, row);
    Widen(landmarks.fp16, row, landmark);
    for (size_t g = 0; g < group; ++g) {
      score[g * chunks + i] = scale * Dot(queries.subspan(g * channels, channels), landmark);
    }
  }
  return SumScores(std::move(score), chunks, group);
}

std::vector<uint32_t> SelectChunks(const ChunkScores& scores, std::span<const uint32_t> always,
                                   uint32_t budget) {
  std::vector<uint32_t> chunks;
  for (uint32_t i = 0; i < scores.chunks; ++i) {
    if (!IsAlways(always.data(), i)) chunks.push_back(i);
  }
  const size_t count = std::min<size_t>(budget, chunks.size());
  std::partial_sort(chunks.begin(), chunks.begin() + static_cast<ptrdiff_t>(count), chunks.end(),
                    [&](uint32_t a, uint32_t b) {
                      const float x = scores.best[a], y = scores.best[b];
                      return x != y ? x > y : a < b;
                    });
  chunks.resize(count);
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

}  // namespace cairn::shadow
