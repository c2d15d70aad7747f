// SPDX-License-Identifier: Apache-2.0
//
// Landmarks of chunks, and the chunks that are always attended to, for one kv head of a layer
// (docs/shadow.md). Chunks count from position 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shadow/shadow_plan.h"

namespace cairn::shadow {

// Rotated keys of bf16 or fp16, one after the other: whole chunks, no element out of range
// (FindOutOfRange).
struct ChunkKeys {
  bool fp16 = false;
  uint32_t channels = 0;
  uint32_t chunk_tokens = 0;
  std::span<const uint16_t> rows{};

  size_t row_count() const { return rows.size() / channels; }
  size_t chunk_count() const { return row_count() / chunk_tokens; }
};

// A landmark is the mean of a chunk's keys: an fp32 sum in the order of tokens, rounded once.
// REQUIRES: room for one row per chunk.
void MakeLandmarks(const ChunkKeys& keys, std::span<uint16_t> landmarks);

// For each chunk the lowest cosine between its landmark and one of its keys; 0 if one of these is
// zero.
std::vector<float> ChunkCosines(const ChunkKeys& keys, std::span<const uint16_t> landmarks);

// The chunks behind the sinks with the lowest cosines, plan.outlier_chunks of them, of equal ones
// the first; in rising order. REQUIRES: the cosines of all chunks of the plan.
std::vector<uint32_t> FindOutliers(const ShadowPlan& plan, std::span<const float> cosines);

// Sinks and outliers, for IsAlways.
std::vector<uint32_t> AlwaysAttended(const ShadowPlan& plan, std::span<const uint32_t> outliers);

}  // namespace cairn::shadow
