// SPDX-License-Identifier: Apache-2.0
#include "cairn/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/codec/model_check.h"
#include "base/codec/rotary.h"
#include "base/core/text.h"

namespace cairn {

namespace {

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

LayerGroup KeyValueGroup(std::string name, uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                         Dtype dtype) {
  // Beyond 32 bits it is as wrong as the largest number.
  const auto row_bytes =
      static_cast<uint32_t>(std::min<uint64_t>(uint64_t{head_dim} * DtypeBytes(dtype), UINT32_MAX));
  LayerGroup group;
  group.name = std::move(name);
  group.layers = layers;
  group.planes = {{.name = "k",
                   .role = PlaneRole::kKey,
                   .heads = kv_heads,
                   .row_bytes = row_bytes,
                   .dtype = dtype,
                   .rotary = {.state = RotaryState::kApplied, .pairing = RotaryPairing::kHalves}},
                  {.name = "v",
                   .role = PlaneRole::kValue,
                   .heads = kv_heads,
                   .row_bytes = row_bytes,
                   .dtype = dtype,
                   .rotary = {.state = RotaryState::kNone}}};
  return group;
}

// In [1, limit].
Status CheckCount(uint64_t count, uint64_t limit, const std::string& field) {
  if (count >= 1 && count <= limit) return Status::Ok();
  return Bad(field + " is " + std::to_string(count) + "; it must be in [1, " +
             std::to_string(limit) + "]");
}

Status CheckText(const std::string& text, uint64_t limit, const std::string& field) {
  if (text.size() <= limit) return Status::Ok();
  return Bad(field + " has " + std::to_string(text.size()) + " bytes, at most " +
             std::to_string(limit));
}

Status ValidateRotary(const Plane& plane, const std::string& where) {
  const RotarySpec& rotary = plane.rotary;
  if (rotary.state > RotaryState::kBefore) return Bad(where + ".state is unknown");
  if (rotary.pairing > RotaryPairing::kAdjacent) return Bad(where + ".pairing is unknown");
  if (rotary.state >= RotaryState::kApplied && plane.dtype == Dtype::kOpaque) {
    return Bad(where + ": opaque bytes cannot be rotated");
  }
  const uint64_t elements = plane.row_bytes / DtypeBytes(plane.dtype);
  if (rotary.width % 2 != 0 || uint64_t{rotary.first} + rotary.width > elements) {
    return Bad(where + ".width: elements [" + std::to_string(rotary.first) + ", " +
               std::to_string(uint64_t{rotary.first} + rotary.width) +
               ") are no pairs within a row of " + std::to_string(elements));
  }
  if (rotary.first != 0 && rotary.width == 0) return Bad(where + ".first is given without a width");
  if (rotary.sections.empty()) {
    return rotary.interleaved ? Bad(where + ".interleaved is given without sections")
                              : Status::Ok();
  }
  if (rotary.sections.size() > kMaxRotarySections) {
    return Bad(where + ".sections: " + std::to_string(rotary.sections.size()) + " given, at most " +
               std::to_string(kMaxRotarySections));
  }
  std::vector<uint32_t> pairs(rotary.sections.size());
  for (uint32_t pair = 0; pair < rotary.width / 2; ++pair) {
    const uint32_t section = RotarySection(rotary, pair);
    if (section < pairs.size()) ++pairs[section];
  }
  const uint64_t sum = std::accumulate(rotary.sections.begin(), rotary.sections.end(), uint64_t{0});
  if (sum != rotary.width / 2 || pairs != rotary.sections) {
    return Bad(where + ".sections: " + std::to_string(sum) + " pairs, which do not make up the " +
               std::to_string(rotary.width / 2) + " of the window");
  }
  return Status::Ok();
}

Status ValidatePlane(const Plane& plane, const std::string& where) {
  Status status = CheckCount(plane.heads, kMaxHeads, where + ".heads");
  if (status.ok()) status = CheckCount(plane.row_bytes, kMaxRowBytes, where + ".row_bytes");
  if (!status.ok()) return status;
  if (plane.dtype > Dtype::kU8) return Bad(where + ".dtype is unknown");
  if (plane.role < PlaneRole::kKey || plane.role > PlaneRole::kOpaque) {
    return Bad(where + ".role is unknown");
  }
  if (plane.row_bytes % DtypeBytes(plane.dtype) != 0) {
    return Bad(where + ".row_bytes is " + std::to_string(plane.row_bytes) +
               ", not a multiple of the size of " + DtypeName(plane.dtype));
  }
  if (Status rotary = ValidateRotary(plane, where + ".rotary"); !rotary.ok()) return rotary;
  const bool divides = plane.role == PlaneRole::kState || plane.role == PlaneRole::kOpaque;
  if (plane.state_parts != 0 && (!divides || plane.row_bytes % plane.state_parts != 0)) {
    return Bad(where + ".state_parts is " + std::to_string(plane.state_parts) +
               (divides ? ", which does not divide row_bytes " + std::to_string(plane.row_bytes)
                        : std::string("; only state and opaque planes have parts")));
  }
  if (plane.sealed_as > SealedAs::kInt8) return Bad(where + ".sealed_as is unknown");
  const bool halves = plane.dtype == Dtype::kBf16 || plane.dtype == Dtype::kF16;
  const bool kv = plane.role == PlaneRole::kKey || plane.role == PlaneRole::kValue;
  if (plane.sealed_as != SealedAs::kLossless && (!halves || !kv)) {
    const char* role = plane.role == PlaneRole::kKey     ? "key"
                       : plane.role == PlaneRole::kValue ? "value"
                                                         : "other";
    return Bad(where + ".sealed_as: " + SealedAsName(plane.sealed_as) +
               " is for keys and values of bf16 or f16; this is a " + role + " plane, and " +
               DtypeName(plane.dtype));
  }
  return Status::Ok();
}

Status ValidateGroup(const LayerGroup& group, const std::string& where) {
  Status counts = CheckCount(group.layers, kMaxLayers, where + ".layers");
  if (counts.ok()) counts = CheckCount(group.planes.size(), kMaxPlanes, where + ".planes.size");
  if (!counts.ok()) return counts;
  for (size_t i = 0; i < group.planes.size(); ++i) {
    const std::string plane_where = where + ".planes[" + std::to_string(i) + "]";
    if (Status status = ValidatePlane(group.planes[i], plane_where); !status.ok()) return status;
  }
  for (size_t i = 0; i < group.planes.size(); ++i) {
    const uint32_t width = group.planes[i].rotary.width;
    if (width != 0 && !group.inv_freq.empty() && group.inv_freq.size() != width / 2) {
      return Bad(where + ".planes[" + std::to_string(i) + "].rotary.width is " +
                 std::to_string(width) + "; the group's inv_freq has " +
                 std::to_string(group.inv_freq.size()) + " numbers");
    }
  }
  for (size_t i = 0; i < group.planes.size() && !group.packing.empty(); ++i) {
    const Dtype dtype = group.planes[i].dtype;
    if (dtype != Dtype::kOpaque) {
      return Bad(where + ".packing is " + Quoted(group.packing) + "; planes of packed bytes are " +
                 DtypeName(Dtype::kOpaque) + ", and planes[" + std::to_string(i) + "] is " +
                 DtypeName(dtype));
    }
  }
  const RetentionRule& rule = group.retention;
  if (rule.kind < Retention::kAll || rule.kind > Retention::kPerRequest) {
    return Bad(where + ".retention.kind is unknown");
  }
  if (rule.kind == Retention::kWindow && rule.window == 0) {
    return Bad(where + ".retention.window must not be 0");
  }
  if (rule.kind == Retention::kChunkLocal && rule.chunk == 0) {
    return Bad(where + ".retention.chunk must not be 0");
  }
  return Status::Ok();
}

// This process has no part of a logical group, or a group of its own with that name.
Status ValidateLogical(const ModelSpec& spec, const LogicalGroup& logical,
                       const std::string& where) {
  if (logical.layer_begin > logical.layer_end || logical.layer_end > logical.layers ||
      logical.head_begin > logical.head_end || logical.head_end > logical.heads) {
    return Bad(where + ": what is held, layers [" + std::to_string(logical.layer_begin) + ", " +
               std::to_string(logical.layer_end) + ") and heads [" +
               std::to_string(logical.head_begin) + ", " + std::to_string(logical.head_end) +
               "), is beyond the group's " + std::to_string(logical.layers) + " layers or " +
               std::to_string(logical.heads) + " heads");
  }
  const auto own =
      std::find_if(spec.groups.begin(), spec.groups.end(),
                   [&](const LayerGroup& group) { return group.name == logical.name; });
  const uint32_t layers = logical.layer_end - logical.layer_begin;
  if (layers != (own == spec.groups.end() ? 0 : own->layers)) {
    return Bad(where + ": " + std::to_string(layers) + " layers are held; the group " +
               Quoted(logical.name) + " has " +
               std::to_string(own == spec.groups.end() ? 0 : own->layers));
  }
  if (own == spec.groups.end()) return Status::Ok();
  const uint32_t heads = logical.head_end - logical.head_begin;
  for (const Plane& plane : own->planes) {
    const bool kv = plane.role == PlaneRole::kKey || plane.role == PlaneRole::kValue;
    const uint32_t held = kv ? plane.heads : plane.state_parts;
    if (held != 0 && held != heads) {
      return Bad(where + ": " + std::to_string(heads) + " heads are held; the plane " +
                 Quoted(plane.name) + " has " + std::to_string(held));
    }
  }
  return Status::Ok();
}

Status ValidateAllLogical(const ModelSpec& spec) {
  if (spec.logical.empty()) return Status::Ok();
  if (spec.logical.size() > kMaxLayerGroups) {
    return Bad("logical: " + std::to_string(spec.logical.size()) + " groups given, at most " +
               std::to_string(kMaxLayerGroups));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < spec.logical.size(); ++i) {
    const std::string where = "logical[" + std::to_string(i) + "]";
    const std::string& name = spec.logical[i].name;
    if (!names.insert(name).second) {
      return Bad(where + ".name: " + Quoted(name) + " is given twice");
    }
    if (Status text = CheckText(name, kMaxGroupNameBytes, where + ".name"); !text.ok()) return text;
    if (Status status = ValidateLogical(spec, spec.logical[i], where); !status.ok()) return status;
  }
  for (const LayerGroup& group : spec.groups) {
    if (!names.contains(group.name)) {
      return Bad("logical: the group " + Quoted(group.name) + " is not among them");
    }
  }
  return Status::Ok();
}

// A store may hold models from before this limit, which do no harm there.
Status CheckGroupLimits(const LayerGroup& group, const std::string& where) {
  Status status = CheckText(group.name, kMaxGroupNameBytes, where + ".name");
  for (size_t i = 0; status.ok() && i < group.planes.size(); ++i) {
    status = CheckText(group.planes[i].name, kMaxGroupNameBytes,
                       where + ".planes[" + std::to_string(i) + "].name");
  }
  if (status.ok()) status = CheckText(group.packing, kMaxGroupNameBytes, where + ".packing");
  if (status.ok()) status = CheckGroupSize(group, where);
  return status.ok() ? CheckAngles(group, where) : status;
}

}  // namespace

uint32_t DtypeBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return 4;
    case Dtype::kF16:
    case Dtype::kBf16: return 2;
    case Dtype::kOpaque:
    case Dtype::kF8E4M3:
    case Dtype::kF8E5M2:
    case Dtype::kI8:
    case Dtype::kU8: return 1;
  }
  return 1;
}

const char* DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kOpaque: return "opaque";
    case Dtype::kF32: return "f32";
    case Dtype::kF16: return "f16";
    case Dtype::kBf16: return "bf16";
    case Dtype::kF8E4M3: return "f8e4m3";
    case Dtype::kF8E5M2: return "f8e5m2";
    case Dtype::kI8: return "i8";
    case Dtype::kU8: return "u8";
  }
  return "unknown";
}

const char* SealedAsName(SealedAs sealed_as) {
  switch (sealed_as) {
    case SealedAs::kLossless: return "lossless";
    case SealedAs::kInt8: return "int8";
  }
  return "unknown";
}

uint64_t LayerGroup::token_bytes() const {
  uint64_t bytes = 0;
  for (const Plane& plane : planes) bytes += uint64_t{plane.heads} * plane.row_bytes;
  return bytes * layers;
}

LayerGroup LayerGroup::FullAttention(uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                     Dtype dtype) {
  return KeyValueGroup("attention", layers, kv_heads, head_dim, dtype);
}

ModelSpec ModelSpec::FullAttention(std::string name, uint32_t layers, uint32_t kv_heads,
                                   uint32_t head_dim, Dtype dtype) {
  ModelSpec spec;
  spec.identity.name = std::move(name);
  spec.groups = {LayerGroup::FullAttention(layers, kv_heads, head_dim, dtype)};
  return spec;
}

LayerGroup LayerGroup::SlidingWindow(uint32_t layers, uint32_t kv_heads, uint32_t head_dim,
                                     Dtype dtype, uint32_t window, uint32_t sinks) {
  LayerGroup group = KeyValueGroup("window", layers, kv_heads, head_dim, dtype);
  group.retention = {.kind = Retention::kWindow, .window = window, .sinks = sinks, .chunk = 0};
  return group;
}

LayerGroup LayerGroup::Mla(uint32_t layers, uint32_t latent_bytes, uint32_t rotary_bytes,
                           Dtype dtype) {
  LayerGroup group;
  group.name = "mla";
  group.layers = layers;
  group.planes = {{.name = "latent",
                   .role = PlaneRole::kLatent,
                   .heads = 1,
                   .row_bytes = latent_bytes,
                   .dtype = dtype,
                   .rotary = {.state = RotaryState::kNone}}};
  if (rotary_bytes != 0) {
    group.planes.push_back(
        {.name = "k_rope",
         .role = PlaneRole::kKey,
         .heads = 1,
         .row_bytes = rotary_bytes,
         .dtype = dtype,
         .rotary = {.state = RotaryState::kApplied, .pairing = RotaryPairing::kAdjacent}});
  }
  return group;
}

LayerGroup LayerGroup::Recurrent(uint32_t layers, uint32_t state_bytes) {
  LayerGroup group;
  group.name = "recurrent";
  group.layers = layers;
  group.planes = {{.name = "state",
                   .role = PlaneRole::kState,
                   .heads = 1,
                   .row_bytes = state_bytes,
                   .dtype = Dtype::kOpaque,
                   .rotary = {.state = RotaryState::kNone}}};
  group.retention.kind = Retention::kCheckpoint;
  return group;
}

uint64_t ModelSpec::token_bytes() const {
  uint64_t bytes = 0;
  for (const LayerGroup& group : groups) bytes += group.token_bytes();
  return bytes;
}

Status CheckGroupSize(const LayerGroup& group, const std::string& where) {
  uint64_t heads = 0;  // No sum or product wraps, by the limits of its parts.
  for (const Plane& plane : group.planes) heads += plane.heads;
  if (heads * group.layers > kMaxGroupHeads) {
    return Bad(where + ".planes: " + std::to_string(heads) + " heads in each of " +
               std::to_string(group.layers) + " layers, at most " + std::to_string(kMaxGroupHeads) +
               " in all");
  }
  if (group.token_bytes() > kMaxPositionBytes) {
    return Bad(where + ": a position takes " + std::to_string(group.token_bytes()) +
               " bytes, at most " + std::to_string(kMaxPositionBytes));
  }
  return Status::Ok();
}

Status CheckAngles(const LayerGroup& group, const std::string& where) {
  if (group.inv_freq.size() > kMaxInvFreq) {
    return Bad(where + ".inv_freq holds " + std::to_string(group.inv_freq.size()) +
               " numbers, at most " + std::to_string(kMaxInvFreq));
  }
  for (size_t i = 0; i < group.inv_freq.size(); ++i) {
    if (!std::isfinite(group.inv_freq[i])) {
      return Bad(where + ".inv_freq[" + std::to_string(i) + "] is not finite");
    }
  }
  if (!std::isfinite(group.mscale)) return Bad(where + ".mscale is not finite");
  return Status::Ok();
}

Status CheckStoredModel(const ModelSpec& spec) {
  if (spec.identity.name.empty()) return Bad("identity.name must not be empty");
  if (spec.groups.size() > kMaxLayerGroups) {
    return Bad("groups: " + std::to_string(spec.groups.size()) + " given, at most " +
               std::to_string(kMaxLayerGroups));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const std::string where = "groups[" + std::to_string(i) + "]";
    if (Status status = ValidateGroup(spec.groups[i], where); !status.ok()) return status;
    if (!names.insert(spec.groups[i].name).second) {
      return Bad(where + ".name: " + Quoted(spec.groups[i].name) + " is given twice");
    }
  }
  const uint32_t extent = spec.extent_tokens;
  if (extent != 0 &&
      (extent < kMinExtentTokens || extent > kMaxExtentTokens || (extent & (extent - 1)) != 0)) {
    return Bad("extent_tokens must be 0 or a power of two in [64, 4096], not " +
               std::to_string(extent));
  }
  const ShardSpec& shard = spec.shard;
  if (shard.context_size == 0 || shard.context_rank >= shard.context_size) {
    return Bad("shard.context_rank must be below shard.context_size");
  }
  if (shard.layer_begin > shard.layer_end || shard.kv_head_begin > shard.kv_head_end) {
    return Bad("shard: a range begins behind its end");
  }
  return ValidateAllLogical(spec);
}

Status ModelSpec::Validate() const {
  const std::pair<const char*, const std::string*> texts[] = {
      {"identity.name", &identity.name},
      {"identity.revision", &identity.revision},
      {"identity.weights_digest", &identity.weights_digest},
      {"identity.tokenizer_digest", &identity.tokenizer_digest},
      {"identity.quantization", &identity.quantization},
      {"identity.cache_dtype", &identity.cache_dtype},
      {"variant.name", &variant.name},
      {"variant.digest", &variant.digest}};
  for (const auto& [field, text] : texts) {
    if (Status status = CheckText(*text, kMaxIdentityBytes, field); !status.ok()) return status;
  }
  if (!std::isfinite(variant.scale)) return Bad("variant.scale is not finite");
  if (Status status = CheckStoredModel(*this); !status.ok()) return status;
  for (size_t i = 0; i < groups.size(); ++i) {
    Status status = CheckGroupLimits(groups[i], "groups[" + std::to_string(i) + "]");
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

}  // namespace cairn
