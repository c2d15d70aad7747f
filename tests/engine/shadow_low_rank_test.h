// SPDX-License-Identifier: Apache-2.0
//
// Shadows of low-rank keys on a simulated device.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/codec/rotary.h"
#include "base/shadow/low_rank.h"
#include "tests/engine/shadow_test.h"

namespace cairn::testing {

class ShadowLowRankTest : public ShadowTest {
 protected:
  ShadowLowRankTest() {
    LayerGroup& group = model_.groups[0];
    group.inv_freq = RotaryFrequencies(kChannels, 10'000.0);
  }

  // The vectors of a layer, made from its first tokens.
  shadow::LowRankBasis Basis(const ShadowSpec& spec, uint32_t layer, uint64_t covered) {
    shadow::GramMatrix gram(kHeads * kChannels);
    for (uint64_t first = 0; first < covered; first += 1024) {
      gram.Add(TurnedBack(layer, first, std::min<uint64_t>(first + 1024, covered)));
    }
    return shadow::FindBasis(gram, spec, false);
  }
  std::vector<float> TurnedBack(uint32_t layer, uint64_t begin, uint64_t end) {
    LayerGroup wide = model_.groups[0];
    wide.planes[0].dtype = Dtype::kF32;
    wide.planes[0].row_bytes *= 2;
    const auto rotation = Rotation::Of(wide, 0);
    EXPECT_OK(rotation);
    std::vector<RotaryTurn> turns(rotation->pairs());
    std::vector<float> rows;
    for (uint64_t position = begin; position < end; ++position) {
      const uint64_t to = 0;
      rotation->Between({&position, 1}, {&to, 1}, turns);
      for (uint32_t head = 0; head < kHeads; ++head) {
        std::vector<float> row;
        for (const uint16_t x : Rows(layer, 0, head, position, position + 1)) {
          row.push_back(Widened(false, x));
        }
        const auto bytes = std::as_writable_bytes(std::span(row));
        rotation->Turn(turns, bytes, bytes);
        rows.insert(rows.end(), row.begin(), row.end());
      }
    }
    return rows;
  }
  // The keys of a chunk by these vectors.
  std::vector<uint16_t> Keys(const shadow::LowRankBasis& basis, uint32_t layer, uint32_t head,
                             uint64_t begin, uint64_t end) {
    const auto rotation = Rotation::Of(model_.groups[0], 0);
    EXPECT_OK(rotation);
    std::vector<RotaryTurn> turns(rotation->pairs());
    std::vector<uint16_t> keys;
    for (uint64_t position = begin; position < end; ++position) {
      const std::vector<float> row = TurnedBack(layer, position, position + 1);
      std::vector<uint16_t> coefficients(basis.rank), key(kChannels);
      shadow::FindCoefficients(basis, row, coefficients);
      shadow::RebuildRow(basis, coefficients, head * kChannels, key);
      const uint64_t from = 0;
      rotation->Between({&from, 1}, {&position, 1}, turns);
      const auto bytes = std::as_writable_bytes(std::span(key));
      rotation->Turn(turns, bytes, bytes);
      keys.insert(keys.end(), key.begin(), key.end());
    }
    return keys;
  }

  void StepAndCompare(ShadowSession& session, const ShadowSpec& spec, uint64_t tokens,
                      uint64_t basis_of, SeededRandom* random) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ShadowSpec chooses = spec;
      chooses.keys = ShadowKeys::kInt4;  // The choice depends on landmarks alone.
      chooses.rank = 0;
      chooses.rank_energy = 0;
      skip_keys_ = true;
      Step(session, chooses, layer, tokens, random);
      ASSERT_OK_ASSIGN(const ShadowView view, session.View(layer));
      const shadow::LowRankBasis basis = Basis(spec, layer, basis_of);
      for (uint32_t head = 0; head < kHeads; ++head) {
        for (uint32_t i = 0; i < view.count; ++i) {
          const uint64_t first = uint64_t{view.chunks[head * view.stride + i]} * spec.chunk_tokens;
          const std::vector<uint16_t> want =
              Keys(basis, layer, head, first, first + spec.chunk_tokens);
          const std::byte* const got =
              view.keys.base + head * view.keys.head_stride + i * view.keys.piece_bytes;
          EXPECT_EQ(0, std::memcmp(got, want.data(), want.size() * 2)) << first;
        }
      }
    }
  }
  // Keys of few directions, but for these positions.
  void MakeKeysFlat(uint64_t begin, uint64_t end, uint64_t seed) {
    const auto rotation = Rotation::Of(model_.groups[0], 0);
    ASSERT_OK(rotation);
    std::vector<RotaryTurn> turns(rotation->pairs());
    for (uint64_t position = begin; position < end; ++position) {
      SeededRandom random(seed + position);
      const float a = Drawn(&random), b = Drawn(&random);
      const uint64_t from = 0;
      rotation->Between({&from, 1}, {&position, 1}, turns);
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        for (uint32_t head = 0; head < kHeads; ++head) {
          const auto row = kv_->Row(0, layer, 0, head, position);
          auto* const at = reinterpret_cast<uint16_t*>(row.data());
          for (uint32_t c = 0; c < kChannels; ++c) {
            const auto x = static_cast<float>(c + 1 + head + seed % 7);
            at[c] = ToBf16(a * std::sin(x) + b * std::cos(2 * x));
          }
          rotation->Turn(turns, row, row);
        }
      }
    }
  }
};

}  // namespace cairn::testing
