// SPDX-License-Identifier: Apache-2.0
//
// Which chunks a step needs, for one kv head of a layer (docs/shadow.md): the host version of the
// kernels score_chunks and select_chunks, equal to them bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/shadow/shadow_math.h"

namespace cairn::shadow {

// Landmarks as they are stored: whole blocks, then rows of the dtype.
struct StoredLandmarks {
  BlockLayout layout{};
  bool fp16 = false;
  uint32_t chunks = 0;
  std::span<const std::byte> blocks{};  // chunks / kBlockRows of them.
  std::span<const uint16_t> tail{};     // Rows of the others.
  std::span<const uint32_t> always{};   // AlwaysAttended.

  void Read(uint32_t chunk, std::span<uint16_t> row) const;
};

struct ChunkScores {
  uint32_t chunks = 0, group = 0;
  std::vector<float> score;    // [query head][chunk]; minus infinity of those always attended to.
  std::vector<TileSum> tiles;  // [query head][tile].
  std::vector<float> log_sum;  // By query head: the logarithm of the sum of e^score.
  std::vector<float> best;     // By chunk: the largest score - log_sum of a query head.
};

// The last three members from the first. REQUIRES: group * chunks scores.
ChunkScores SumScores(std::vector<float> score, uint32_t chunks, uint32_t group);

// `queries` has a row of fp32 for each query head of the kv head.
ChunkScores ScoreChunks(const StoredLandmarks& landmarks, std::span<const float> queries,
                        float scale);

// The `budget` chunks with the largest `best`, of equal ones the first, without those that are
// always attended to; in rising order. All others if there are fewer.
std::vector<uint32_t> SelectChunks(const ChunkScores& scores, std::span<const uint32_t> always,
                                   uint32_t budget);

}  // namespace cairn::shadow
