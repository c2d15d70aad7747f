// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/landmarks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/check.h"
#include "base/shadow/row_math.h"

namespace cairn::shadow {
namespace {

void Check(const ChunkKeys& keys, size_t landmark_elements) {
  CAIRN_CHECK(keys.rows.size() == keys.chunk_count() * keys.chunk_tokens * keys.channels);
  CAIRN_CHECK(landmark_elements == keys.chunk_count() * keys.channels);
}

}  // namespace

void MakeLandmarks(const ChunkKeys& keys, std::span<uint16_t> landmarks) {
  Check(keys, landmarks.size());
  const float share = 1.0F / static_cast<float>(keys.chunk_tokens);
  std::vector<float> sum(keys.channels);
  for (size_t chunk = 0; chunk < keys.chunk_count(); ++chunk) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (size_t row = chunk * keys.chunk_tokens; row < (chunk + 1) * keys.chunk_tokens; ++row) {
      const uint16_t* const key = &keys.rows[row * keys.channels];
      for (uint32_t c = 0; c < keys.channels; ++c) sum[c] += Widened(keys.fp16, key[c]);
    }
    uint16_t* const landmark = &landmarks[chunk * keys.channels];
    for (uint32_t c = 0; c < keys.channels; ++c) landmark[c] = Narrowed(keys.fp16, sum[c] * share);
  }
}

std::vector<float> ChunkCosines(const ChunkKeys& keys, std::span<const uint16_t> landmarks) {
  Check(keys, landmarks.size());
  std::vector<float> cosines(keys.chunk_count(), kInfinity);
  std::vector<float> landmark(keys.channels), key(keys.channels);
  for (size_t chunk = 0; chunk < cosines.size(); ++chunk) {
    Widen(keys.fp16, landmarks.subspan(chunk * keys.channels, keys.channels), landmark);
    const float landmark_norm = std::sqrt(Dot(landmark, landmark));
    for (size_t row = chunk * keys.chunk_tokens; row < (chunk + 1) * keys.chunk_tokens; ++row) {
      Widen(keys.fp16, keys.rows.subspan(row * keys.channels, keys.channels), key);
      const float norms = landmark_norm * std::sqrt(Dot(key, key));
      const float cosine = norms == 0.0F ? 0.0F : Dot(landmark, key) / norms;
      cosines[chunk] = std::min(cosines[chunk], cosine);
    }
  }
  return cosines;
}

std::vector<uint32_t> FindOutliers(const ShadowPlan& plan, std::span<const float> cosines) {
  CAIRN_CHECK(cosines.size() == plan.chunks);
  std::vector<uint32_t> chunks(plan.chunks - plan.sink_chunks);
  std::iota(chunks.begin(), chunks.end(), plan.sink_chunks);
  const auto end = chunks.begin() + plan.outlier_chunks;
  std::partial_sort(chunks.begin(), end, chunks.end(), [&](uint32_t a, uint32_t b) {
    return cosines[a] != cosines[b] ? cosines[a] < cosines[b] : a < b;
  });
  chunks.erase(end, chunks.end());
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

std::vector<uint32_t> AlwaysAttended(const ShadowPlan& plan, std::span<const uint32_t> outliers) {
  std::vector<uint32_t> always((size_t{plan.chunks} + 31) / 32);
  for (uint32_t i = 0; i < plan.sink_chunks; ++i) always[i / 32] |= 1u << i % 32;
  for (const uint32_t i : outliers) always[i / 32] |= 1u << i % 32;
  return always;
}

}  // namespace cairn::shadow
