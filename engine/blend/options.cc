// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/options.h"

#include <cmath>
#include <string>

#include "base/codec/rotary.h"
#include "base/core/text.h"
#include "engine/blend/constants.h"

namespace cairn {

BlendOptions BlendOptions::Lmcache() {
  BlendOptions options;
  options.min_tokens = 256;
  options.recompute_first = 0;
  options.recompute_ratio = 0.15;
  options.recompute_boundary = 0;
  options.min_match_ratio = 1.0;
  return options;
}

BlendOptions BlendOptions::Ucm() {
  BlendOptions options;
  options.recompute_first = 0;
  options.rope_theta = 10'000.0;
  options.head_dim = 128;
  return options;
}

const char* BlendMatchName(BlendMatch match) {
  switch (match) {
    case BlendMatch::kNone: return "none";
    case BlendMatch::kPrefix: return "prefix";
    case BlendMatch::kFull: return "full";
    case BlendMatch::kPartial: return "partial";
  }
  return "unknown";
}

namespace engine {

namespace {

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

std::string RangeText(uint64_t begin, uint64_t end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

Status CheckSeparators(const BlendOptions& options) {
  const size_t count = options.separators.size();
  if (count > kMaxSeparators) {
    return Bad("options.separators: " + std::to_string(count) + "; at most " +
               std::to_string(kMaxSeparators));
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t tokens = options.separators[i].size();
    if (tokens == 0) return Bad("options.separators[" + std::to_string(i) + "] is empty");
    if (tokens > kMaxSeparatorTokens) {
      return Bad("options.separators[" + std::to_string(i) + "]: " + std::to_string(tokens) +
                 " ids; at most " + std::to_string(kMaxSeparatorTokens));
    }
  }
  return Status::Ok();
}

Status CheckRanges(const BlendOptions& options, uint64_t tokens) {
  uint64_t end = 0;
  for (const PromptRange& range : options.recompute) {
    if (range.begin < end || range.begin >= range.end || range.end > tokens) {
      return Bad("options.recompute: " + RangeText(range.begin, range.end) +
                 " must lie in order within the " + std::to_string(tokens) + " tokens");
    }
    end = range.end;
  }
  if (options.sources.size() > kMaxBlendSources) {
    return Bad("options.sources: " + std::to_string(options.sources.size()) + "; at most " +
               std::to_string(kMaxBlendSources));
  }
  end = 0;
  for (const BlendSource& source : options.sources) {
    const bool ordered = source.begin < source.end && source.at >= end && source.at <= tokens &&
                         source.end - source.begin <= tokens - source.at;
    if (!ordered) {
      return Bad("options.sources: " + RangeText(source.begin, source.end) + " at " +
                 std::to_string(source.at) + " must lie in order within the " +
                 std::to_string(tokens) + " tokens");
    }
    end = source.at + (source.end - source.begin);
  }
  return Status::Ok();
}

std::string PlaneText(const LayerGroup& group, const Plane& plane) {
  return "model: group " + Quoted(group.name) + ", plane " + Quoted(plane.name);
}

// The base, from the first two pairs: scalings leave fast pairs alone, or change all alike.
double ThetaOf(const LayerGroup& group) {
  if (group.inv_freq.size() < 2 || group.inv_freq[0] <= 0 || group.inv_freq[1] <= 0) return 0.0;
  const double step = double{group.inv_freq[1]} / double{group.inv_freq[0]};
  return std::pow(step, -static_cast<double>(group.inv_freq.size()));
}

Status CheckSaid(const BlendOptions& options, const LayerGroup& group, const Plane& plane) {
  const double theta = ThetaOf(group);
  if (options.rope_theta != 0.0 && theta != 0.0 &&
      std::abs(theta - options.rope_theta) > kThetaTolerance * theta) {
    return Status(StatusCode::kModelMismatch,
                  "options.rope_theta is " + std::to_string(options.rope_theta) + "; " +
                      PlaneText(group, plane) + " has " + std::to_string(theta));
  }
  const uint32_t elements = plane.row_bytes / DtypeBytes(plane.dtype);
  if (options.head_dim != 0 && plane.dtype != Dtype::kOpaque && elements != options.head_dim) {
    return Status(StatusCode::kModelMismatch,
                  "options.head_dim is " + std::to_string(options.head_dim) + "; " +
                      PlaneText(group, plane) + " has " + std::to_string(elements));
  }
  return Status::Ok();
}

Status CheckPlane(const LayerGroup& group, size_t index) {
  const Plane& plane = group.planes[index];
  const RotaryState state = plane.rotary.state;
  if (state == RotaryState::kNone || state == RotaryState::kBefore) return Status::Ok();
  const bool may_be_keys = plane.role == PlaneRole::kKey || plane.role == PlaneRole::kLatent ||
                           plane.role == PlaneRole::kOpaque;
  if (state == RotaryState::kUnset && !may_be_keys) return Status::Ok();
  if (plane.dtype == Dtype::kOpaque) {
    return Bad(PlaneText(group, plane) + " is opaque: it may hold keys, which cannot be turned" +
               (group.packing.empty() ? "" : "; packed as " + Quoted(group.packing)));
  }
  if (state == RotaryState::kUnset) {
    return Bad(PlaneText(group, plane) +
               ": rotary.state is unset, so it is not known how to turn keys");
  }
  return Rotation::Of(group, index).status();
}

}  // namespace

Status CheckBlendOptions(const BlendOptions& options, uint64_t tokens) {
  if (options.min_tokens < kMinBlendTokens) {
    return Bad("options.min_tokens: " + std::to_string(options.min_tokens) + "; at least " +
               std::to_string(kMinBlendTokens));
  }
  // Also what is no number.
  if (!(options.recompute_ratio >= 0.0 && options.recompute_ratio <= 1.0)) {
    return Bad("options.recompute_ratio: " + std::to_string(options.recompute_ratio) +
               " is not in [0, 1]");
  }
  if (!(options.min_match_ratio > 0.0 && options.min_match_ratio <= 1.0)) {
    return Bad("options.min_match_ratio: " + std::to_string(options.min_match_ratio) +
               " is not in (0, 1]");
  }
  if (options.chunk_tokens == 0 || options.align_tokens == 0) {
    return Bad(options.chunk_tokens == 0 ? "options.chunk_tokens is 0"
                                         : "options.align_tokens is 0");
  }
  if (!(options.rope_theta >= 0.0) || std::isinf(options.rope_theta)) {
    return Bad("options.rope_theta: " + std::to_string(options.rope_theta) + " is no base");
  }
  CAIRN_RETURN_IF_ERROR(CheckSeparators(options));
  return CheckRanges(options, tokens);
}

Status CheckBlendModel(const BlendOptions& options, const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    const Retention kind = group.retention.kind;
    if (!group.optional && (kind == Retention::kCheckpoint || kind == Retention::kPerRequest)) {
      return Bad("model: group " + Quoted(group.name) +
                 " keeps states, which belong to all tokens before them");
    }
    for (const Plane& plane : group.planes) {
      if (plane.rotary.state != RotaryState::kApplied) continue;
      CAIRN_RETURN_IF_ERROR(CheckSaid(options, group, plane));
    }
  }
  return Status::Ok();
}

Status CheckTurnable(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      CAIRN_RETURN_IF_ERROR(CheckPlane(group, plane));
    }
  }
  return Status::Ok();
}

bool HasSeveralPositions(const ModelSpec& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Plane& plane : group.planes) {
      if (plane.rotary.sections.size() > 1) return true;
    }
  }
  return false;
}

}  // namespace engine

}  // namespace cairn
