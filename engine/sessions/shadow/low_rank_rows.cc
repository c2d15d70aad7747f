// SPDX-License-Identifier: Apache-2.0
#include "engine/sessions/shadow/low_rank_rows.h"

#include <utility>

#include "base/codec/float16.h"
#include "engine/sessions/shadow/constants.h"
#include "engine/sessions/sparse/head_rows.h"

namespace cairn::engine {

namespace {

// The share of the sum of squares that lies in the vectors' directions.
float KeptBy(const shadow::GramMatrix& gram, const shadow::LowRankBasis& basis) {
  const size_t n = basis.channels;
  const std::span<const double> sum = gram.values();  // By columns; below the diagonal.
  double all = 0, kept = 0;
  for (size_t c = 0; c < n; ++c) all += sum[c * n + c];
  std::vector<double> vector(n);
  for (uint32_t r = 0; r < basis.rank; ++r) {
    for (size_t c = 0; c < n; ++c) {
      vector[c] = static_cast<double>(Widened(basis.fp16, basis.vectors[r * n + c]));
    }
    for (size_t column = 0; column < n; ++column) {
      double product = 0.5 * sum[column * n + column] * vector[column];
      for (size_t c = column + 1; c < n; ++c) product += sum[column * n + c] * vector[c];
      kept += 2 * vector[column] * product;
    }
  }
  return all == 0 ? 1.0F : static_cast<float>(kept / all);
}

}  // namespace

bool IsStale(const LayerBasis& basis, double all, double kept) {
  const double lost = 1.0 - static_cast<double>(basis.kept);
  return all - kept > (kStaleBasisLoss * lost + kStaleBasisLossMin) * all;
}

Result<LowRankRows> LowRankRows::Of(const ShadowRowsOf& from, const ShadowShape& shape) {
  CAIRN_ASSIGN_OR_RETURN(KeyRows keys, KeyRows::Of(*shape.of));
  return LowRankRows(from, shape, std::move(keys));
}

Result<std::vector<float>> LowRankRows::ReadRows(uint32_t layer,
                                                 const ShadowPartLayout& part) const {
  const size_t elements = size_t{part.tokens} * shape_.channels;
  std::vector<uint16_t> keys(shape_.heads * elements);
  std::vector<HeadRows> reads;
  for (uint32_t head = 0; head < shape_.heads; ++head) {
    reads.push_back({.layer = layer,
                     .plane = 0,
                     .head = head,
                     .first = part.first,
                     .tokens = part.tokens,
                     .into = reinterpret_cast<std::byte*>(&keys[head * elements])});
  }
  const auto row_bytes = shape_.row_bytes();
  CAIRN_RETURN_IF_ERROR(
      ReadHeadRows(from_.reads, from_.node, shape_.group, row_bytes, reads, UINT64_MAX));
  std::vector<float> rows(keys.size());
  keys_.TurnBack(part.first, keys, rows);
  return rows;
}

Result<LayerBasis> LowRankRows::MakeBasis(uint32_t layer) const {
  shadow::GramMatrix gram(shape_.all_channels());
  for (const ShadowPartLayout& part : PartsOf(shape_)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> rows, ReadRows(layer, part));
    gram.Add(rows);
  }
  LayerBasis made{.basis = shadow::FindBasis(gram, shape_.spec, shape_.fp16)};
  made.kept = KeptBy(gram, made.basis);
  return made;
}

Result<std::vector<uint16_t>> LowRankRows::MakeRows(uint32_t layer, const ShadowPartLayout& part,
                                                    const shadow::LowRankBasis& basis, double* all,
                                                    double* kept) const {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> rows, ReadRows(layer, part));
  std::vector<uint16_t> made(size_t{part.tokens} * basis.rank);
  for (uint32_t t = 0; t < part.tokens; ++t) {
    const auto row = std::span(rows).subspan(size_t{t} * basis.channels, basis.channels);
    const auto into = std::span(made).subspan(size_t{t} * basis.rank, basis.rank);
    shadow::FindCoefficients(basis, row, into);
    for (const float x : row) *all += static_cast<double>(x) * static_cast<double>(x);
    for (const uint16_t u : into) {
      const auto x = static_cast<double>(Widened(basis.fp16, u));
      *kept += x * x;
    }
  }
  return made;
}

}  // namespace cairn::engine
