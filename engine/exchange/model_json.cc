// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/model_json.h"

#include "base/codec/model_check.h"
#include "engine/exchange/hex.h"

namespace cairn::engine {

namespace {

template <typename Enum>
uint64_t Number(Enum value) {
  return static_cast<uint64_t>(value);
}

Json PlaneToJson(const Plane& plane) {
  const RotarySpec& rotary = plane.rotary;
  return {{"name", TextToJson(plane.name)},
          {"role", Number(plane.role)},
          {"heads", plane.heads},
          {"row_bytes", plane.row_bytes},
          {"dtype", Number(plane.dtype)},
          {"rotary",
           {{"state", Number(rotary.state)},
            {"pairing", Number(rotary.pairing)},
            {"first", rotary.first},
            {"width", rotary.width},
            {"sections", rotary.sections},
            {"interleaved", rotary.interleaved}}},
          {"sealed_as", Number(plane.sealed_as)},
          {"state_parts", plane.state_parts}};
}

Json GroupToJson(const LayerGroup& group) {
  Json planes = Json::array();
  for (const Plane& plane : group.planes) planes.push_back(PlaneToJson(plane));
  return {{"name", TextToJson(group.name)},
          {"layers", group.layers},
          {"planes", planes},
          {"retention",
           {{"kind", Number(group.retention.kind)},
            {"window", group.retention.window},
            {"sinks", group.retention.sinks},
            {"chunk", group.retention.chunk}}},
          {"optional", group.optional},
          {"packing", TextToJson(group.packing)},
          {"inv_freq", group.inv_freq},
          {"mscale", group.mscale}};
}

Json LogicalToJson(const LogicalGroup& group) {
  return {{"name", TextToJson(group.name)}, {"layers", group.layers},
          {"heads", group.heads},           {"layer_begin", group.layer_begin},
          {"layer_end", group.layer_end},   {"head_begin", group.head_begin},
          {"head_end", group.head_end},     {"replicated", group.replicated}};
}

Plane PlaneFromJson(const Json& json, const std::string& name, Status* wrong) {
  Plane plane;
  JsonFields fields(json, name, wrong);
  fields.Read("name", &plane.name);
  fields.ReadEnum("role", PlaneRole::kOpaque, &plane.role);
  fields.Read("heads", &plane.heads);
  fields.Read("row_bytes", &plane.row_bytes);
  fields.ReadEnum("dtype", Dtype::kU8, &plane.dtype);
  fields.ReadEnum("sealed_as", SealedAs::kInt8, &plane.sealed_as);
  fields.Read("state_parts", &plane.state_parts);
  if (const Json* const found = fields.Find("rotary")) {
    JsonFields rotary(*found, name + ".rotary", wrong);
    rotary.ReadEnum("state", RotaryState::kBefore, &plane.rotary.state);
    rotary.ReadEnum("pairing", RotaryPairing::kAdjacent, &plane.rotary.pairing);
    rotary.Read("first", &plane.rotary.first);
    rotary.Read("width", &plane.rotary.width);
    rotary.Read("interleaved", &plane.rotary.interleaved);
    rotary.Each("sections", [&](const Json& one, const std::string& where) {
      plane.rotary.sections.push_back(static_cast<uint32_t>(NumberOf(one, where, wrong)));
    });
  }
  return plane;
}

LayerGroup GroupFromJson(const Json& json, const std::string& name, Status* wrong) {
  LayerGroup group;
  JsonFields fields(json, name, wrong);
  fields.Read("name", &group.name);
  fields.Read("layers", &group.layers);
  fields.Read("optional", &group.optional);
  fields.Read("packing", &group.packing);
  fields.Read("mscale", &group.mscale);
  fields.Each("planes", [&](const Json& one, const std::string& where) {
    group.planes.push_back(PlaneFromJson(one, where, wrong));
  });
  fields.Each("inv_freq", [&](const Json& one, const std::string& where) {
    if (!one.is_number()) return fields.Fail("inv_freq", "has no number at " + where);
    group.inv_freq.push_back(static_cast<float>(one.get<double>()));
  });
  if (const Json* const found = fields.Find("retention")) {
    JsonFields rule(*found, name + ".retention", wrong);
    rule.ReadEnum("kind", Retention::kPerRequest, &group.retention.kind);
    rule.Read("window", &group.retention.window);
    rule.Read("sinks", &group.retention.sinks);
    rule.Read("chunk", &group.retention.chunk);
  }
  return group;
}

LogicalGroup LogicalFromJson(const Json& json, const std::string& name, Status* wrong) {
  LogicalGroup group;
  JsonFields fields(json, name, wrong);
  fields.Read("name", &group.name);
  fields.Read("layers", &group.layers);
  fields.Read("heads", &group.heads);
  fields.Read("layer_begin", &group.layer_begin);
  fields.Read("layer_end", &group.layer_end);
  fields.Read("head_begin", &group.head_begin);
  fields.Read("head_end", &group.head_end);
  fields.Read("replicated", &group.replicated);
  return group;
}

}  // namespace

Json ModelToJson(const ModelSpec& spec) {
  const ModelIdentity& identity = spec.identity;
  const ShardSpec& shard = spec.shard;
  Json groups = Json::array(), logical = Json::array();
  for (const LayerGroup& group : spec.groups) groups.push_back(GroupToJson(group));
  for (const LogicalGroup& group : spec.logical) logical.push_back(LogicalToJson(group));
  return {{"identity",
           {{"name", TextToJson(identity.name)},
            {"revision", TextToJson(identity.revision)},
            {"weights_digest", TextToJson(identity.weights_digest)},
            {"tokenizer_digest", TextToJson(identity.tokenizer_digest)},
            {"quantization", TextToJson(identity.quantization)},
            {"cache_dtype", TextToJson(identity.cache_dtype)}}},
          {"variant",
           {{"name", TextToJson(spec.variant.name)},
            {"digest", TextToJson(spec.variant.digest)},
            {"scale", spec.variant.scale}}},
          {"shard",
           {{"layer_begin", shard.layer_begin},
            {"layer_end", shard.layer_end},
            {"kv_head_begin", shard.kv_head_begin},
            {"kv_head_end", shard.kv_head_end},
            {"context_rank", shard.context_rank},
            {"context_size", shard.context_size},
            {"replicated", shard.replicated}}},
          {"groups", groups},
          {"logical", logical},
          {"extent_tokens", spec.extent_tokens}};
}

Result<ModelSpec> ModelFromJson(const Json& json, const std::string& name) {
  ModelSpec spec;
  Status wrong;
  JsonFields fields(json, name, &wrong);
  if (const Json* const found = fields.Find("identity")) {
    JsonFields identity(*found, name + ".identity", &wrong);
    identity.Read("name", &spec.identity.name);
    identity.Read("revision", &spec.identity.revision);
    identity.Read("weights_digest", &spec.identity.weights_digest);
    identity.Read("tokenizer_digest", &spec.identity.tokenizer_digest);
    identity.Read("quantization", &spec.identity.quantization);
    identity.Read("cache_dtype", &spec.identity.cache_dtype);
  }
  if (const Json* const found = fields.Find("variant")) {
    JsonFields variant(*found, name + ".variant", &wrong);
    variant.Read("name", &spec.variant.name);
    variant.Read("digest", &spec.variant.digest);
    variant.Read("scale", &spec.variant.scale);
  }
  if (const Json* const found = fields.Find("shard")) {
    JsonFields shard(*found, name + ".shard", &wrong);
    shard.Read("layer_begin", &spec.shard.layer_begin);
    shard.Read("layer_end", &spec.shard.layer_end);
    shard.Read("kv_head_begin", &spec.shard.kv_head_begin);
    shard.Read("kv_head_end", &spec.shard.kv_head_end);
    shard.Read("context_rank", &spec.shard.context_rank);
    shard.Read("context_size", &spec.shard.context_size);
    shard.Read("replicated", &spec.shard.replicated);
  }
  fields.Each("groups", [&](const Json& one, const std::string& where) {
    spec.groups.push_back(GroupFromJson(one, where, &wrong));
  });
  fields.Each("logical", [&](const Json& one, const std::string& where) {
    spec.logical.push_back(LogicalFromJson(one, where, &wrong));
  });
  fields.Read("extent_tokens", &spec.extent_tokens);
  CAIRN_RETURN_IF_ERROR(wrong);
  CAIRN_RETURN_IF_ERROR(spec.Validate().WithContext(name));
  return spec;
}

Json SpansToJson(std::span<const ContentSpan> spans) {
  Json json = Json::array();
  for (const ContentSpan& span : spans) {
    json.push_back({{"begin", span.begin},
                    {"end", span.end},
                    {"hash", {span.hash[0], span.hash[1]}},
                    {"atomic", span.atomic}});
  }
  return json;
}

Result<std::vector<ContentSpan>> SpansFromJson(const Json& json, uint64_t begin, uint64_t end,
                                               const std::string& name) {
  std::vector<ContentSpan> spans;
  if (!json.is_array()) return Status(StatusCode::kCorruption, name + " is no array");
  Status wrong;
  for (const Json& one : json) {
    ContentSpan span;
    JsonFields fields(one, name + "[" + std::to_string(spans.size()) + "]", &wrong);
    fields.Read("begin", &span.begin);
    fields.Read("end", &span.end);
    fields.Read("atomic", &span.atomic);
    size_t words = 0;
    fields.Each("hash", [&](const Json& word, const std::string& where) {
      if (words < 2) span.hash[words] = NumberOf(word, where, &wrong);
      ++words;
    });
    if (words != 2) fields.Fail("hash", "has not two numbers");
    const uint64_t from = spans.empty() ? begin : spans.back().end;
    if (span.begin < from || span.begin >= span.end || span.end > end) {
      fields.Fail("", "does not lie behind the one before, within the tokens");
    }
    CAIRN_RETURN_IF_ERROR(wrong);
    spans.push_back(span);
  }
  return spans;
}

Json KeepToJson(const Keep& keep) {
  return {{"pinned", keep.pinned}, {"priority", keep.priority}, {"ttl_ns", keep.ttl_ns}};
}

Keep KeepFromJson(const Json& json, const std::string& name, Status* wrong) {
  Keep keep;
  JsonFields fields(json, name, wrong);
  fields.Read("pinned", &keep.pinned);
  fields.Read("priority", &keep.priority);
  fields.Read("ttl_ns", &keep.ttl_ns);
  return keep;
}

}  // namespace cairn::engine
