// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/low_rank.h"

#define EIGEN_MPL2_ONLY
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "base/codec/float16.h"
#include "base/core/check.h"

namespace cairn::shadow {
namespace {

// Rows that are added at a time: with 1024 channels, 2 MiB in fp64.
constexpr Eigen::Index kPortion = 256;

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// `values` rise.
uint32_t RankOf(const ShadowSpec& spec, const Eigen::VectorXd& values) {
  if (spec.rank != 0) return spec.rank;
  const Eigen::VectorXd energy = values.cwiseMax(0.0);  // Rounding may leave some below 0.
  const double wanted = spec.rank_energy * energy.sum();
  uint32_t rank = 0;
  for (double kept = 0.0; rank < energy.size() && (rank == 0 || kept < wanted); ++rank) {
    kept += energy(energy.size() - 1 - rank);
  }
  return rank;
}

}  // namespace

GramMatrix::GramMatrix(uint32_t channels)
    : channels_(channels), values_(size_t{channels} * channels) {
  CAIRN_CHECK(channels > 0);
}

void GramMatrix::Add(std::span<const float> rows) {
  const auto count = static_cast<Eigen::Index>(rows.size() / channels_);
  CAIRN_CHECK(rows.size() == static_cast<size_t>(count) * channels_);
  const Eigen::Map<const Rows> all(rows.data(), count, channels_);
  Eigen::Map<Eigen::MatrixXd> sum(values_.data(), channels_, channels_);
  for (Eigen::Index first = 0; first < count; first += kPortion) {
    const Eigen::MatrixXd portion =
        all.middleRows(first, std::min(kPortion, count - first)).cast<double>();
    sum.selfadjointView<Eigen::Lower>().rankUpdate(portion.transpose());
  }
}

LowRankBasis FindBasis(const GramMatrix& gram, const ShadowSpec& spec, bool fp16) {
  const uint32_t channels = gram.channels();
  CAIRN_CHECK(spec.keys == ShadowKeys::kLowRank && spec.rank <= channels);
  const Eigen::Map<const Eigen::MatrixXd> sum(gram.values().data(), channels, channels);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(sum);  // Reads the lower half.
  CAIRN_CHECK(solver.info() == Eigen::Success);
  LowRankBasis basis{.fp16 = fp16,
                     .channels = channels,
                     .rank = RankOf(spec, solver.eigenvalues()),
                     .vectors = {}};
  for (uint32_t r = 0; r < basis.rank; ++r) {
    const Eigen::VectorXd vector = solver.eigenvectors().col(channels - 1 - r);
    Eigen::Index largest;
    vector.cwiseAbs().maxCoeff(&largest);
    const double sign = vector(largest) < 0 ? -1.0 : 1.0;
    for (const double component : vector) {
      basis.vectors.push_back(Narrowed(fp16, static_cast<float>(sign * component)));
    }
  }
  return basis;
}

void FindCoefficients(const LowRankBasis& basis, std::span<const float> row,
                      std::span<uint16_t> coefficients) {
  CAIRN_CHECK(row.size() == basis.channels && coefficients.size() == basis.rank);
  const float largest = Widened(basis.fp16, basis.fp16 ? 0x7BFF : 0x7F7F);
  for (size_t r = 0; r < basis.rank; ++r) {
    double dot = 0.0;
    for (size_t c = 0; c < basis.channels; ++c) {
      dot += static_cast<double>(row[c]) *
             static_cast<double>(Widened(basis.fp16, basis.vectors[r * basis.channels + c]));
    }
    coefficients[r] = Narrowed(basis.fp16, std::clamp(static_cast<float>(dot), -largest, largest));
  }
}

void RebuildRow(const LowRankBasis& basis, std::span<const uint16_t> coefficients, uint32_t first,
                std::span<uint16_t> row) {
  CAIRN_CHECK(coefficients.size() == basis.rank && first + row.size() <= basis.channels);
  for (size_t c = 0; c < row.size(); ++c) {
    float sum = 0.0F;
    for (size_t r = 0; r < basis.rank; ++r) {
      sum += Widened(basis.fp16, coefficients[r]) *
             Widened(basis.fp16, basis.vectors[r * basis.channels + first + c]);
    }
    row[c] = Narrowed(basis.fp16, sum);
  }
}

}  // namespace cairn::shadow
