// SPDX-License-Identifier: Apache-2.0
//
// Low-rank keys of a layer, made of stored ones: the vectors, and the coefficients of each token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sessions/shadow/key_rows.h"
#include "engine/sessions/shadow/shadow_parts.h"
#include "engine/sessions/shadow/shadow_table.h"

namespace cairn::engine {

// The vectors lose much more of the keys that came since than of those that they were made of.
// `all`, `kept`: sums of squares of the former, by MakeRows.
bool IsStale(const LayerBasis& basis, double all, double kept);

class LowRankRows {
 public:
  // REQUIRES: `shape` has low-rank keys, and outlives this, as `from` does.
  static Result<LowRankRows> Of(const ShadowRowsOf& from, const ShadowShape& shape);

  // The basis for all parts of the layer. Blocking: reads its keys, and computes.
  Result<LayerBasis> MakeBasis(uint32_t layer) const;
  // Makes the rows of one part, as they are stored. Adds to the sums of squares of the keys, and of
  // what is kept.
  Result<std::vector<uint16_t>> MakeRows(uint32_t layer, const ShadowPartLayout& part,
                                         const shadow::LowRankBasis& basis, double* all,
                                         double* kept) const;

 private:
  LowRankRows(const ShadowRowsOf& from, const ShadowShape& shape, KeyRows keys)
      : from_(from), shape_(shape), keys_(std::move(keys)) {}
  Result<std::vector<float>> ReadRows(uint32_t layer, const ShadowPartLayout& part) const;

  const ShadowRowsOf& from_;
  const ShadowShape& shape_;
  const KeyRows keys_;
};

}  // namespace cairn::engine
