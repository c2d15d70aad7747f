// SPDX-License-Identifier: Apache-2.0
#include "cairn/model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/codec/model_check.h"

namespace cairn {

namespace {

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

std::string Versus(const std::string& field, uint64_t ours, uint64_t theirs) {
  return field + ": " + std::to_string(ours) + " against " + std::to_string(theirs);
}

std::string Versus(const std::string& field, const std::string& ours, const std::string& theirs) {
  return field + ": \"" + ours + "\" against \"" + theirs + "\"";
}

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
                   .rotary = true},
                  {.name = "v",
                   .role = PlaneRole::kValue,
                   .heads = kv_heads,
                   .row_bytes = row_bytes,
                   .dtype = dtype,
                   .rotary = false}};
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
  if (plane.rotary && plane.dtype == Dtype::kOpaque) {
    return Bad(where + ".rotary: opaque bytes cannot be rotated");
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

// What a store may hold from before there was this limit, and does no harm there.
Status CheckGroupLimits(const LayerGroup& group, const std::string& where) {
  Status status = CheckText(group.name, kMaxGroupNameBytes, where + ".name");
  for (size_t i = 0; status.ok() && i < group.planes.size(); ++i) {
    status = CheckText(group.planes[i].name, kMaxGroupNameBytes,
                       where + ".planes[" + std::to_string(i) + "].name");
  }
  if (status.ok()) status = CheckGroupSize(group, where);
  if (!status.ok()) return status;
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

std::string PlaneDifference(const Plane& a, const Plane& b, const std::string& where) {
  if (a.name != b.name) return Versus(where + ".name", a.name, b.name);
  if (a.role != b.role) {
    return Versus(where + ".role", static_cast<uint64_t>(a.role), static_cast<uint64_t>(b.role));
  }
  if (a.heads != b.heads) return Versus(where + ".heads", a.heads, b.heads);
  if (a.row_bytes != b.row_bytes) return Versus(where + ".row_bytes", a.row_bytes, b.row_bytes);
  if (a.dtype != b.dtype) return Versus(where + ".dtype", DtypeName(a.dtype), DtypeName(b.dtype));
  if (a.rotary != b.rotary) return Versus(where + ".rotary", a.rotary, b.rotary);
  if (a.sealed_as != b.sealed_as) {
    return Versus(where + ".sealed_as", SealedAsName(a.sealed_as), SealedAsName(b.sealed_as));
  }
  return {};
}

std::string GroupDifference(const LayerGroup& a, const LayerGroup& b, const std::string& where) {
  if (a.name != b.name) return Versus(where + ".name", a.name, b.name);
  if (a.layers != b.layers) return Versus(where + ".layers", a.layers, b.layers);
  if (a.planes.size() != b.planes.size()) {
    return Versus(where + ".planes.size", a.planes.size(), b.planes.size());
  }
  for (size_t i = 0; i < a.planes.size(); ++i) {
    std::string difference =
        PlaneDifference(a.planes[i], b.planes[i], where + ".planes[" + std::to_string(i) + "]");
    if (!difference.empty()) return difference;
  }
  if (a.retention != b.retention) return where + ".retention differs";
  if (a.optional != b.optional) return Versus(where + ".optional", a.optional, b.optional);
  if (a.inv_freq != b.inv_freq) return where + ".inv_freq differs";
  if (a.mscale != b.mscale) return where + ".mscale differs";
  return {};
}

std::string IdentityDifference(const ModelIdentity& a, const ModelIdentity& b) {
  if (a.name != b.name) return Versus("identity.name", a.name, b.name);
  if (a.revision != b.revision) return Versus("identity.revision", a.revision, b.revision);
  if (a.weights_digest != b.weights_digest) {
    return Versus("identity.weights_digest", a.weights_digest, b.weights_digest);
  }
  if (a.tokenizer_digest != b.tokenizer_digest) {
    return Versus("identity.tokenizer_digest", a.tokenizer_digest, b.tokenizer_digest);
  }
  if (a.quantization != b.quantization) {
    return Versus("identity.quantization", a.quantization, b.quantization);
  }
  if (a.cache_dtype != b.cache_dtype) {
    return Versus("identity.cache_dtype", a.cache_dtype, b.cache_dtype);
  }
  return {};
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
                   .rotary = false}};
  if (rotary_bytes != 0) {
    group.planes.push_back({.name = "k_rope",
                            .role = PlaneRole::kKey,
                            .heads = 1,
                            .row_bytes = rotary_bytes,
                            .dtype = dtype,
                            .rotary = true});
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
                   .rotary = false}};
  group.retention.kind = Retention::kCheckpoint;
  return group;
}

uint64_t ModelSpec::token_bytes() const {
  uint64_t bytes = 0;
  for (const LayerGroup& group : groups) bytes += group.token_bytes();
  return bytes;
}

Status CheckGroupSize(const LayerGroup& group, const std::string& where) {
  uint64_t heads = 0;  // No sum or product wraps, by the limits of what they are made of.
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
      return Bad(where + ".name: \"" + spec.groups[i].name + "\" is given twice");
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
  return Status::Ok();
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

std::string ModelSpec::FirstDifference(const ModelSpec& other) const {
  std::string difference = IdentityDifference(identity, other.identity);
  if (!difference.empty()) return difference;
  if (variant.name != other.variant.name) {
    return Versus("variant.name", variant.name, other.variant.name);
  }
  if (variant.digest != other.variant.digest) {
    return Versus("variant.digest", variant.digest, other.variant.digest);
  }
  if (variant.scale != other.variant.scale) return "variant.scale differs";
  if (shard != other.shard) return "shard differs";
  if (groups.size() != other.groups.size()) {
    return Versus("groups.size", groups.size(), other.groups.size());
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    difference = GroupDifference(groups[i], other.groups[i], "groups[" + std::to_string(i) + "]");
    if (!difference.empty()) return difference;
  }
  if (extent_tokens != other.extent_tokens) {
    return Versus("extent_tokens", extent_tokens, other.extent_tokens);
  }
  return {};
}

}  // namespace cairn
