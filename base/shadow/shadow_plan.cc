// SPDX-License-Identifier: Apache-2.0
#include "base/shadow/shadow_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/core/text.h"
#include "base/shadow/shadow_math.h"

namespace cairn {

const char* ShadowKeysName(ShadowKeys keys) {
  switch (keys) {
    case ShadowKeys::kExact: return "exact";
    case ShadowKeys::kInt8: return "int8";
    case ShadowKeys::kInt4: return "int4";
    case ShadowKeys::kLowRank: return "low_rank";
  }
  return "unknown";
}

ShadowSpec ShadowSpec::Published(uint32_t key_channels) {
  constexpr uint32_t kRank = 160, kChannels = 1024;
  ShadowSpec spec;
  spec.chunk_tokens = 8;
  spec.keys = ShadowKeys::kLowRank;
  spec.landmark_bits = 16;
  spec.local_tokens = 32;
  spec.sink_tokens = 0;
  spec.outlier_chunks = 48;
  spec.budget_tokens = 2048;
  spec.rank = std::max(1u, std::min(key_channels, kChannels) * kRank / kChannels);
  return spec;
}

namespace shadow {
namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "shadow: " + what);
}

bool IsShare(double x) { return x >= 0.0 && x <= 1.0; }  // Not NaN.

Status ValidateKeys(const ShadowSpec& spec) {
  switch (spec.keys) {
    case ShadowKeys::kExact:
    case ShadowKeys::kInt8:
    case ShadowKeys::kInt4:
      if (spec.rank != 0) return Bad("rank is given, but keys are not low_rank");
      if (spec.rank_energy != 0) return Bad("rank_energy is given, but keys are not low_rank");
      return Status::Ok();
    case ShadowKeys::kLowRank:
      if (!IsShare(spec.rank_energy)) {
        return Bad("rank_energy is " + std::to_string(spec.rank_energy) + ", not from 0 to 1");
      }
      if ((spec.rank != 0) == (spec.rank_energy != 0)) {
        return Bad("keys are low_rank, and just one of rank and rank_energy must be given");
      }
      return Status::Ok();
  }
  return Bad("keys is " + std::to_string(static_cast<uint32_t>(spec.keys)) + ", which is none");
}

}  // namespace

Status ValidateShadowSpec(const ShadowSpec& spec) {
  const uint32_t chunk = spec.chunk_tokens;
  if (!std::has_single_bit(chunk) || chunk > 16) {
    return Bad("chunk_tokens is " + std::to_string(chunk) + ", not 1, 2, 4, 8 or 16");
  }
  if (spec.landmark_bits != 16 && spec.landmark_bits != 8 && spec.landmark_bits != 4) {
    return Bad("landmark_bits is " + std::to_string(spec.landmark_bits) + ", not 16, 8 or 4");
  }
  if (spec.local_tokens % chunk != 0) {
    return Bad("local_tokens is " + std::to_string(spec.local_tokens) +
               ", not a multiple of chunk_tokens, " + std::to_string(chunk));
  }
  if (spec.budget_tokens % chunk != 0) {
    return Bad("budget_tokens is " + std::to_string(spec.budget_tokens) +
               ", not a multiple of chunk_tokens, " + std::to_string(chunk));
  }
  if (!IsShare(spec.outlier_share)) {
    return Bad("outlier_share is " + std::to_string(spec.outlier_share) + ", not from 0 to 1");
  }
  return ValidateKeys(spec);
}

Status ValidateShadowSpec(const ShadowSpec& spec, const LayerGroup& group) {
  CAIRN_RETURN_IF_ERROR(ValidateShadowSpec(spec));
  const auto bad = [&](const std::string& what) {
    return Bad("group " + Quoted(group.name) + ": " + what);
  };
  if (group.retention.kind != Retention::kAll) return bad("its retention does not keep all rows");
  if (group.planes.size() != 2 || group.planes[0].role != PlaneRole::kKey ||
      group.planes[1].role != PlaneRole::kValue) {
    return bad("its planes are not keys, then values");
  }
  const Plane& keys = group.planes[0];
  const Plane& values = group.planes[1];
  for (const Plane* const plane : {&keys, &values}) {
    if (plane->dtype != Dtype::kBf16 && plane->dtype != Dtype::kF16) {
      return bad("plane " + Quoted(plane->name) + " is of " + DtypeName(plane->dtype) +
                 ", not of bf16 or f16");
    }
  }
  if (keys.heads != values.heads) return bad("keys and values have different heads");
  const uint64_t channels = keys.row_bytes / DtypeBytes(keys.dtype);
  if (channels == 0 || channels % 8 != 0) {
    return bad("a row of keys has " + std::to_string(channels) + " elements, not a multiple of 8");
  }
  if (spec.rank > keys.heads * channels) {
    return bad("rank is " + std::to_string(spec.rank) + ", the keys of a layer have " +
               std::to_string(keys.heads * channels) + " channels");
  }
  return Status::Ok();
}

Result<ShadowPlan> PlanShadow(const ShadowSpec& spec, uint64_t length) {
  if (spec.budget_tokens > length) {
    return Bad("budget_tokens is " + std::to_string(spec.budget_tokens) + ", the context has " +
               std::to_string(length) + " tokens");
  }
  ShadowPlan plan;
  if (length < spec.local_tokens) return plan;
  plan.covered = (length - spec.local_tokens) / kBlockRows * kBlockRows;
  const uint64_t chunks = plan.covered / spec.chunk_tokens;
  if (chunks > std::numeric_limits<uint32_t>::max()) {
    return Bad("the context has " + std::to_string(length) + " tokens, which is too much");
  }
  plan.chunks = static_cast<uint32_t>(chunks);
  const uint64_t chunk = spec.chunk_tokens;
  plan.sink_chunks =
      static_cast<uint32_t>(std::min<uint64_t>(chunks, (spec.sink_tokens + chunk - 1) / chunk));
  const uint32_t others = plan.chunks - plan.sink_chunks;
  plan.outlier_chunks =
      std::min(others, spec.outlier_chunks != 0
                           ? spec.outlier_chunks
                           : static_cast<uint32_t>(std::ceil(spec.outlier_share * plan.chunks)));
  const uint64_t tokens = spec.budget_tokens != 0
                              ? spec.budget_tokens
                              : std::min<uint64_t>(kBudgetTokensMax, length / kBudgetShare);
  const auto budget = static_cast<uint32_t>(std::max<uint64_t>(1, tokens / chunk));
  plan.budget_chunks = std::min(budget, others - plan.outlier_chunks);
  return plan;
}

}  // namespace shadow
}  // namespace cairn
