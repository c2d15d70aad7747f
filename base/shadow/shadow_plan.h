// SPDX-License-Identifier: Apache-2.0
//
// The sizes that follow from a ShadowSpec: for a model, and for a context of a certain length.
#pragma once

#include <cstdint>

#include "cairn/model.h"
#include "cairn/shadow.h"
#include "cairn/status.h"

namespace cairn::shadow {

// Without a context: min(kBudgetTokensMax, length / kBudgetShare).
inline constexpr uint32_t kBudgetTokensMax = 2048;
inline constexpr uint32_t kBudgetShare = 8;

// kInvalidArgument naming the field.
Status ValidateShadowSpec(const ShadowSpec& spec);

// Also whether layers of this group can have such a shadow: all rows are kept, planes are keys,
// then values, of the same heads and of bf16 or fp16; rows of keys have a multiple of 8 elements,
// those of all heads together at least spec.rank. kInvalidArgument naming the field.
Status ValidateShadowSpec(const ShadowSpec& spec, const LayerGroup& group);

// The plan for one kv head; all heads and layers of a context share it.
struct ShadowPlan {
  // The shadow covers positions [0, covered); behind them lies the local window. A multiple of
  // kBlockRows. 0: the context is too short for a shadow, attention is dense.
  uint64_t covered = 0;
  uint32_t chunks = 0;          // All chunks of the covered positions.
  uint32_t sink_chunks = 0;     // The first ones.
  uint32_t outlier_chunks = 0;  // Some of those behind the sinks.
  uint32_t budget_chunks = 0;   // Selected in a step, at most as many as are left.
};

// kInvalidArgument: a budget over the context; more than 2^32 - 1 chunks.
// REQUIRES: a valid spec.
Result<ShadowPlan> PlanShadow(const ShadowSpec& spec, uint64_t length);

}  // namespace cairn::shadow
