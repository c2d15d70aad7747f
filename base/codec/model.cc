// SPDX-License-Identifier: Apache-2.0
#include "cairn/model.h"

#include <set>

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
  const uint32_t row_bytes = head_dim * DtypeBytes(dtype);
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

Status ValidatePlane(const Plane& plane, const std::string& where) {
  if (plane.heads == 0 || plane.heads > 65536) return Bad(where + ".heads must be in [1, 65536]");
  if (plane.row_bytes == 0 || plane.row_bytes > (1u << 26)) {
    return Bad(where + ".row_bytes must be in [1, 64 MiB]");
  }
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
  if (group.layers == 0 || group.layers > 65536)
    return Bad(where + ".layers must be in [1, 65536]");
  if (group.planes.empty() || group.planes.size() > 64) {
    return Bad(where + ".planes must hold 1 to 64 planes");
  }
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

Status ModelSpec::Validate() const {
  if (identity.name.empty()) return Bad("identity.name must not be empty");
  for (const std::string* text :
       {&identity.name, &identity.revision, &identity.weights_digest, &identity.tokenizer_digest,
        &identity.quantization, &identity.cache_dtype, &variant.name, &variant.digest}) {
    if (text->size() > 1024) return Bad("identity and variant strings hold at most 1024 bytes");
  }
  if (groups.size() > kMaxLayerGroups) {
    return Bad("groups: " + std::to_string(groups.size()) + " given, at most " +
               std::to_string(kMaxLayerGroups));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string where = "groups[" + std::to_string(i) + "]";
    if (Status status = ValidateGroup(groups[i], where); !status.ok()) return status;
    if (!names.insert(groups[i].name).second) {
      return Bad(where + ".name: \"" + groups[i].name + "\" is given twice");
    }
  }
  if (extent_tokens != 0 &&
      (extent_tokens < 64 || extent_tokens > 4096 || (extent_tokens & (extent_tokens - 1)) != 0)) {
    return Bad("extent_tokens must be 0 or a power of two in [64, 4096], not " +
               std::to_string(extent_tokens));
  }
  if (shard.context_size == 0 || shard.context_rank >= shard.context_size) {
    return Bad("shard.context_rank must be below shard.context_size");
  }
  if (shard.layer_begin > shard.layer_end || shard.kv_head_begin > shard.kv_head_end) {
    return Bad("shard: a range begins behind its end");
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
