// SPDX-License-Identifier: Apache-2.0
//
// The parts of the shadow of a context: how many there are of each, and how large they are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/shadow/shadow_math.h"
#include "base/shadow/shadow_plan.h"
#include "cairn/model.h"
#include "cairn/shadow.h"

namespace cairn::engine {

struct ShadowShape {
  // kInvalidArgument names the field.
  static Result<ShadowShape> Of(const ModelSpec& model, uint32_t group, const ShadowSpec& spec,
                                uint64_t tokens);

  ShadowSpec spec{};
  shadow::ShadowPlan plan{};
  uint64_t tokens = 0;
  uint32_t group = 0, layers = 0, heads = 0;
  uint32_t channels = 0;  // Per row of keys.
  bool fp16 = false;
  uint32_t key_bytes = 0, value_bytes = 0;  // Per row.
  std::shared_ptr<const LayerGroup> of{};   // How keys are rotated.

  // DerivedTables knows it by this: another spec has another one, as a rule.
  uint32_t kind() const;
  bool is_low_rank() const { return spec.keys == ShadowKeys::kLowRank; }
  // Per layer, over all heads.
  uint32_t all_channels() const { return heads * channels; }
  bool is_dense() const { return plan.covered == 0; }
  bool has_codes() const {
    return spec.keys == ShadowKeys::kInt8 || spec.keys == ShadowKeys::kInt4;
  }
  shadow::BlockLayout landmark_layout() const { return {channels, spec.landmark_bits}; }
  // REQUIRES: has_codes().
  shadow::BlockLayout key_layout() const {
    return {channels, spec.keys == ShadowKeys::kInt8 ? 8U : 4U};
  }
  uint32_t always_chunks() const { return plan.sink_chunks + plan.outlier_chunks; }
  std::vector<uint32_t> row_bytes() const { return {key_bytes, value_bytes}; }
  size_t rows() const { return size_t{layers} * heads; }
};

}  // namespace cairn::engine
