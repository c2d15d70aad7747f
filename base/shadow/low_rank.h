// SPDX-License-Identifier: Apache-2.0
//
// Keys from before rotation as combinations of a few vectors that all kv heads of a layer share
// (ShadowKeys::kLowRank; docs/shadow.md). The vectors are eigenvectors, by Eigen. A basis found
// twice, by other builds or from rows in other portions, need not have the same bits: it is kept
// with the coefficients that were made for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/shadow.h"

namespace cairn::shadow {

// The sum of k k^T over tokens, in fp64. A row k holds the keys of all heads of a layer for one
// token, one after the other.
class GramMatrix {
 public:
  explicit GramMatrix(uint32_t channels);
  // Whole rows. REQUIRES: finite numbers.
  void Add(std::span<const float> rows);

  uint32_t channels() const { return channels_; }
  // By columns; only elements on or below the diagonal count, the others are 0.
  std::span<const double> values() const { return values_; }

 private:
  const uint32_t channels_;
  std::vector<double> values_;
};

struct LowRankBasis {
  bool fp16 = false;
  uint32_t channels = 0, rank = 0;
  // [rank][channels] of the dtype. The largest eigenvalue first; of each vector the component of
  // the largest magnitude is positive.
  std::vector<uint16_t> vectors{};
};

// REQUIRES: a valid spec of keys that are kLowRank; its rank is at most gram.channels().
LowRankBasis FindBasis(const GramMatrix& gram, const ShadowSpec& spec, bool fp16);

// The dot products of a row with each vector: in fp64, rounded to fp32 and to the dtype, and kept
// finite. REQUIRES: a row; room for `rank` products.
void FindCoefficients(const LowRankBasis& basis, std::span<const float> row,
                      std::span<uint16_t> coefficients);

// The channels of a row from `first` on, as many as there is room for, before rotation.
void RebuildRow(const LowRankBasis& basis, std::span<const uint16_t> coefficients, uint32_t first,
                std::span<uint16_t> row);

}  // namespace cairn::shadow
