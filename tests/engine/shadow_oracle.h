// SPDX-License-Identifier: Apache-2.0
//
// The content that a step attends to, by base/shadow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/core/check.h"
#include "base/shadow/block_quantizer.h"
#include "base/shadow/chunk_scores.h"
#include "base/shadow/landmarks.h"
#include "base/shadow/rebuild.h"
#include "base/shadow/shadow_plan.h"

namespace cairn::testing {

// The shadow of the keys of one head of one layer, by base/shadow.
struct ShadowOracle {
  ShadowOracle(const ShadowSpec& of, bool is_fp16, uint32_t width, std::span<const uint16_t> rows)
      : spec(of), fp16(is_fp16), channels(width) {
    const auto planned = shadow::PlanShadow(spec, rows.size() / channels);
    CAIRN_CHECK(planned.ok());
    plan = *planned;
    keys.assign(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(plan.covered * channels));
    const shadow::ChunkKeys chunks{fp16, channels, spec.chunk_tokens, keys};
    landmarks.resize(size_t{plan.chunks} * channels);
    shadow::MakeLandmarks(chunks, landmarks);
    outliers = shadow::FindOutliers(plan, shadow::ChunkCosines(chunks, landmarks));
    always = shadow::AlwaysAttended(plan, outliers);
    const size_t block = size_t{shadow::kBlockRows} * channels;
    const size_t whole = landmarks.size() / block;
    blocks.resize(whole * layout().block_bytes());
    for (size_t i = 0; i < whole; ++i) {
      const auto from = std::span(landmarks).subspan(i * block, block);
      const auto into =
          std::span(blocks).subspan(i * layout().block_bytes(), layout().block_bytes());
      if (spec.landmark_bits == 16) {
        std::memcpy(into.data(), from.data(), into.size());
      } else {
        shadow::QuantiseBlock(layout(), fp16, from, into);
      }
    }
    tail = std::span(landmarks).subspan(whole * block);
  }

  shadow::BlockLayout layout() const { return {channels, spec.landmark_bits}; }
  std::vector<uint32_t> Select(std::span<const float> queries, float scale) const {
    const shadow::StoredLandmarks stored{layout(), fp16, plan.chunks, blocks, tail, always};
    return shadow::SelectChunks(shadow::ScoreChunks(stored, queries, scale), always,
                                plan.budget_chunks);
  }
  // Those of a chunk, as a step gets them.
  std::vector<uint16_t> Keys(uint32_t chunk) const {
    const size_t count = size_t{spec.chunk_tokens} * channels;
    std::vector<uint16_t> rows(keys.begin() + static_cast<ptrdiff_t>(chunk * count),
                               keys.begin() + static_cast<ptrdiff_t>((chunk + 1) * count));
    if (spec.keys == ShadowKeys::kExact) return rows;
    const shadow::BlockLayout codes{channels, spec.keys == ShadowKeys::kInt8 ? 8U : 4U};
    const size_t block = size_t{shadow::kBlockRows} * channels;
    std::vector<std::byte> stored(keys.size() / block * codes.block_bytes());
    for (size_t i = 0; i < keys.size() / block; ++i) {
      shadow::QuantiseBlock(
          codes, fp16, std::span(keys).subspan(i * block, block),
          std::span(stored).subspan(i * codes.block_bytes(), codes.block_bytes()));
    }
    shadow::RebuildChunk(codes, fp16, stored, chunk, spec.chunk_tokens, rows);
    return rows;
  }

  const ShadowSpec spec;
  const bool fp16;
  const uint32_t channels;
  shadow::ShadowPlan plan;
  std::vector<uint16_t> keys, landmarks;
  std::vector<uint32_t> outliers, always;
  std::vector<std::byte> blocks;
  std::span<const uint16_t> tail;
};

}  // namespace cairn::testing
