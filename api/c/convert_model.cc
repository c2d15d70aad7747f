// SPDX-License-Identifier: Apache-2.0
#include "api/c/convert.h"

namespace cairn::capi {

Status ToDtype(cairn_dtype given, const char* field, Dtype* into) {
  return ToEnum(given, Dtype::kU8, field, into);
}

namespace {

Result<Plane> ToPlane(const cairn_plane& given) {
  Plane plane;
  plane.name = String(given.name);
  CAIRN_RETURN_IF_ERROR(ToEnum(given.role, PlaneRole::kOpaque, "cairn_plane::role", &plane.role));
  plane.heads = given.heads;
  plane.row_bytes = given.row_bytes;
  CAIRN_RETURN_IF_ERROR(ToDtype(given.dtype, "cairn_plane::dtype", &plane.dtype));
  CAIRN_RETURN_IF_ERROR(
      ToEnum(given.sealed_as, SealedAs::kInt8, "cairn_plane::sealed_as", &plane.sealed_as));
  plane.state_parts = given.state_parts;
  RotarySpec& rotary = plane.rotary;
  CAIRN_RETURN_IF_ERROR(
      ToEnum(given.rotary_state, RotaryState::kBefore, "cairn_plane::rotary_state", &rotary.state));
  CAIRN_RETURN_IF_ERROR(ToEnum(given.rotary_pairing, RotaryPairing::kAdjacent,
                               "cairn_plane::rotary_pairing", &rotary.pairing));
  rotary.first = given.rotary_first;
  rotary.width = given.rotary_width;
  rotary.interleaved = given.rotary_interleaved;
  CAIRN_RETURN_IF_ERROR(CheckCount(given.rotary_sections, given.rotary_section_count,
                                   kMaxRotarySections, "cairn_plane::rotary_sections"));
  rotary.sections.assign(given.rotary_sections, given.rotary_sections + given.rotary_section_count);
  return plane;
}

LogicalGroup ToLogical(const cairn_logical_group& given) {
  LogicalGroup group;
  group.name = String(given.name);
  group.layers = given.layers;
  group.heads = given.heads;
  group.layer_begin = given.layer_begin;
  group.layer_end = given.layer_end;
  group.head_begin = given.head_begin;
  group.head_end = given.head_end;
  group.replicated = given.replicated;
  return group;
}

cairn_logical_group ToC(const LogicalGroup& group) {
  auto c = Sized<cairn_logical_group>::Default();
  c.name = group.name.c_str();
  c.layers = group.layers;
  c.heads = group.heads;
  c.layer_begin = group.layer_begin;
  c.layer_end = group.layer_end;
  c.head_begin = group.head_begin;
  c.head_end = group.head_end;
  c.replicated = group.replicated;
  return c;
}

}  // namespace

Result<LayerGroup> ToLayerGroup(const cairn_layer_group& given) {
  LayerGroup group;
  group.name = String(given.name);
  group.layers = given.layers;
  CAIRN_RETURN_IF_ERROR(ToEnum(given.retention, Retention::kPerRequest,
                               "cairn_layer_group::retention", &group.retention.kind));
  group.retention.window = given.window;
  group.retention.sinks = given.sinks;
  group.retention.chunk = given.chunk;
  group.optional = given.optional;
  group.packing = String(given.packing);
  group.mscale = given.mscale;
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<cairn_plane> planes,
      ReadAll(given.planes, given.plane_count, kMaxPlanes, "cairn_layer_group::planes"));
  for (const cairn_plane& plane : planes) {
    CAIRN_ASSIGN_OR_RETURN(Plane converted, ToPlane(plane));
    group.planes.push_back(std::move(converted));
  }
  CAIRN_RETURN_IF_ERROR(
      CheckCount(given.inv_freq, given.inv_freq_count, kMaxInvFreq, "cairn_layer_group::inv_freq"));
  group.inv_freq.assign(given.inv_freq, given.inv_freq + given.inv_freq_count);
  return group;
}

Result<KeyRotation> ToKeyRotation(const cairn_key_rotation* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_key_rotation read, Read(given));
  const auto check = [](const void* first, size_t count, const char* field) {
    return CheckCount(first, count, SIZE_MAX, field);
  };
  CAIRN_RETURN_IF_ERROR(check(read.from, read.from_count, "cairn_key_rotation::from"));
  CAIRN_RETURN_IF_ERROR(check(read.to, read.to_count, "cairn_key_rotation::to"));
  CAIRN_RETURN_IF_ERROR(check(read.rows, read.rows_size, "cairn_key_rotation::rows"));
  CAIRN_RETURN_IF_ERROR(check(read.into, read.into_size, "cairn_key_rotation::into"));
  const auto strides = [](const cairn_key_strides& c) {
    return KeyStrides{.layer = c.layer, .token = c.token, .head = c.head, .element = c.element};
  };
  return KeyRotation{.plane = read.plane,
                     .layers = read.layers,
                     .from = {read.from, read.from_count},
                     .to = {read.to, read.to_count},
                     .rows = {static_cast<const std::byte*>(read.rows), read.rows_size},
                     .into = {static_cast<std::byte*>(read.into), read.into_size},
                     .row_strides = strides(read.row_strides),
                     .into_strides = strides(read.into_strides)};
}

Result<ModelSpec> ToModel(const cairn_model_spec* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_model_spec read, Read(given));
  ModelSpec spec;
  spec.identity = {.name = String(read.name),
                   .revision = String(read.revision),
                   .weights_digest = String(read.weights_digest),
                   .tokenizer_digest = String(read.tokenizer_digest),
                   .quantization = String(read.quantization),
                   .cache_dtype = String(read.cache_dtype)};
  spec.variant = {.name = String(read.variant_name),
                  .digest = String(read.variant_digest),
                  .scale = read.variant_scale};
  spec.shard = {.layer_begin = read.shard_layer_begin,
                .layer_end = read.shard_layer_end,
                .kv_head_begin = read.shard_kv_head_begin,
                .kv_head_end = read.shard_kv_head_end,
                .context_rank = read.shard_context_rank,
                .context_size = read.shard_context_size,
                .replicated = read.shard_replicated};
  spec.extent_tokens = read.extent_tokens;
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<cairn_layer_group> groups,
      ReadAll(read.groups, read.group_count, kMaxLayerGroups, "cairn_model_spec::groups"));
  for (const cairn_layer_group& group : groups) {
    CAIRN_ASSIGN_OR_RETURN(LayerGroup converted, ToLayerGroup(group));
    spec.groups.push_back(std::move(converted));
  }
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<cairn_logical_group> logical,
      ReadAll(read.logical, read.logical_count, kMaxLayerGroups, "cairn_model_spec::logical"));
  for (const cairn_logical_group& group : logical) spec.logical.push_back(ToLogical(group));
  return spec;
}

cairn_plane ToC(const Plane& plane) {
  auto c = Sized<cairn_plane>::Default();
  c.name = plane.name.c_str();
  c.role = static_cast<uint32_t>(plane.role);
  c.heads = plane.heads;
  c.row_bytes = plane.row_bytes;
  c.dtype = static_cast<uint32_t>(plane.dtype);
  c.sealed_as = static_cast<uint32_t>(plane.sealed_as);
  c.state_parts = plane.state_parts;
  c.rotary_state = static_cast<uint32_t>(plane.rotary.state);
  c.rotary_pairing = static_cast<uint32_t>(plane.rotary.pairing);
  c.rotary_first = plane.rotary.first;
  c.rotary_width = plane.rotary.width;
  c.rotary_interleaved = plane.rotary.interleaved;
  c.rotary_sections = plane.rotary.sections.data();
  c.rotary_section_count = plane.rotary.sections.size();
  return c;
}

cairn_layer_group ToC(const LayerGroup& group) {
  auto c = Sized<cairn_layer_group>::Default();
  c.name = group.name.c_str();
  c.layers = group.layers;
  c.retention = static_cast<uint32_t>(group.retention.kind);
  c.window = group.retention.window;
  c.sinks = group.retention.sinks;
  c.chunk = group.retention.chunk;
  c.optional = group.optional;
  c.mscale = group.mscale;
  c.inv_freq = group.inv_freq.data();
  c.inv_freq_count = group.inv_freq.size();
  c.packing = group.packing.c_str();
  return c;
}

ModelAsC::ModelAsC(const ModelSpec& from) : spec(Sized<cairn_model_spec>::Default()) {
  for (const LayerGroup& group : from.groups) {
    std::vector<cairn_plane>& planes = planes_.emplace_back();
    for (const Plane& plane : group.planes) planes.push_back(ToC(plane));
    cairn_layer_group& as_c = groups_.emplace_back(ToC(group));
    as_c.planes = planes.data();
    as_c.plane_count = planes.size();
  }
  for (const LogicalGroup& group : from.logical) logical_.push_back(ToC(group));
  spec.name = from.identity.name.c_str();
  spec.revision = from.identity.revision.c_str();
  spec.weights_digest = from.identity.weights_digest.c_str();
  spec.tokenizer_digest = from.identity.tokenizer_digest.c_str();
  spec.quantization = from.identity.quantization.c_str();
  spec.cache_dtype = from.identity.cache_dtype.c_str();
  spec.variant_name = from.variant.name.c_str();
  spec.variant_digest = from.variant.digest.c_str();
  spec.variant_scale = from.variant.scale;
  spec.shard_layer_begin = from.shard.layer_begin;
  spec.shard_layer_end = from.shard.layer_end;
  spec.shard_kv_head_begin = from.shard.kv_head_begin;
  spec.shard_kv_head_end = from.shard.kv_head_end;
  spec.shard_context_rank = from.shard.context_rank;
  spec.shard_context_size = from.shard.context_size;
  spec.shard_replicated = from.shard.replicated;
  spec.extent_tokens = from.extent_tokens;
  spec.groups = groups_.data();
  spec.group_count = groups_.size();
  spec.logical = logical_.data();
  spec.logical_count = logical_.size();
}

}  // namespace cairn::capi
