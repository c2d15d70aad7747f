// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/model.h"

#include "api/python/src/names.h"

namespace cairn::python {

namespace {

void BindIdentity(nb::module_& module) {
  nb::class_<ModelIdentity>(module, "ModelIdentity", R"(The caller's words for a model.

Two models are the same only when all of them are equal. Only `name` is required.)")
      .def(
          "__init__",
          [](ModelIdentity* self, std::string name, std::string revision,
             std::string weights_digest, std::string tokenizer_digest, std::string quantization,
             std::string cache_dtype) {
            new (self) ModelIdentity{.name = std::move(name),
                                     .revision = std::move(revision),
                                     .weights_digest = std::move(weights_digest),
                                     .tokenizer_digest = std::move(tokenizer_digest),
                                     .quantization = std::move(quantization),
                                     .cache_dtype = std::move(cache_dtype)};
          },
          "name"_a, nb::kw_only(), "revision"_a = "", "weights_digest"_a = "",
          "tokenizer_digest"_a = "", "quantization"_a = "", "cache_dtype"_a = "")
      .def_ro("name", &ModelIdentity::name)
      .def_ro("revision", &ModelIdentity::revision)
      .def_ro("weights_digest", &ModelIdentity::weights_digest)
      .def_ro("tokenizer_digest", &ModelIdentity::tokenizer_digest)
      .def_ro("quantization", &ModelIdentity::quantization)
      .def_ro("cache_dtype", &ModelIdentity::cache_dtype)
      .def(ByValue());

  nb::class_<ModelVariant>(module, "ModelVariant", "An adapter (LoRA) on a base model.")
      .def(
          "__init__",
          [](ModelVariant* self, std::string name, std::string digest, double scale) {
            new (self)
                ModelVariant{.name = std::move(name), .digest = std::move(digest), .scale = scale};
          },
          "name"_a = "", nb::kw_only(), "digest"_a = "", "scale"_a = 1.0)
      .def_ro("name", &ModelVariant::name)
      .def_ro("digest", &ModelVariant::digest)
      .def_ro("scale", &ModelVariant::scale)
      .def(ByValue());
}

void BindShard(nb::module_& module) {
  nb::class_<ShardSpec>(module, "ShardSpec", R"(Which part of the logical model this process holds.

Layers [layer_begin, layer_end) and KV heads [kv_head_begin, kv_head_end) of it; 0, 0: all.)")
      .def(
          "__init__",
          [](ShardSpec* self, uint32_t layer_begin, uint32_t layer_end, uint32_t kv_head_begin,
             uint32_t kv_head_end, uint32_t context_rank, uint32_t context_size, bool replicated) {
            new (self) ShardSpec{.layer_begin = layer_begin,
                                 .layer_end = layer_end,
                                 .kv_head_begin = kv_head_begin,
                                 .kv_head_end = kv_head_end,
                                 .context_rank = context_rank,
                                 .context_size = context_size,
                                 .replicated = replicated};
          },
          nb::kw_only(), "layer_begin"_a = 0, "layer_end"_a = 0, "kv_head_begin"_a = 0,
          "kv_head_end"_a = 0, "context_rank"_a = 0, "context_size"_a = 1, "replicated"_a = false)
      .def_ro("layer_begin", &ShardSpec::layer_begin)
      .def_ro("layer_end", &ShardSpec::layer_end)
      .def_ro("kv_head_begin", &ShardSpec::kv_head_begin)
      .def_ro("kv_head_end", &ShardSpec::kv_head_end)
      .def_ro("context_rank", &ShardSpec::context_rank)
      .def_ro("context_size", &ShardSpec::context_size)
      .def_ro("replicated", &ShardSpec::replicated)
      .def(ByValue());

  nb::class_<LogicalGroup>(module, "LogicalGroup", R"(A layer group of the logical model, as if one
process had all of it, and which of its layers and heads this process holds.)")
      .def(
          "__init__",
          [](LogicalGroup* self, std::string name, uint32_t layers, uint32_t heads,
             uint32_t layer_begin, uint32_t layer_end, uint32_t head_begin, uint32_t head_end,
             bool replicated) {
            new (self) LogicalGroup{.name = std::move(name),
                                    .layers = layers,
                                    .heads = heads,
                                    .layer_begin = layer_begin,
                                    .layer_end = layer_end,
                                    .head_begin = head_begin,
                                    .head_end = head_end,
                                    .replicated = replicated};
          },
          "name"_a, nb::kw_only(), "layers"_a, "heads"_a, "layer_begin"_a = 0, "layer_end"_a = 0,
          "head_begin"_a = 0, "head_end"_a = 0, "replicated"_a = false)
      .def_ro("name", &LogicalGroup::name)
      .def_ro("layers", &LogicalGroup::layers)
      .def_ro("heads", &LogicalGroup::heads)
      .def_ro("layer_begin", &LogicalGroup::layer_begin)
      .def_ro("layer_end", &LogicalGroup::layer_end)
      .def_ro("head_begin", &LogicalGroup::head_begin)
      .def_ro("head_end", &LogicalGroup::head_end)
      .def_ro("replicated", &LogicalGroup::replicated)
      .def(ByValue());
}

ModelSpec SpecOfOneGroup(const std::string& name, uint32_t layers, uint32_t kv_heads,
                         uint32_t head_dim, const nb::object& dtype, uint32_t window,
                         uint32_t sinks, std::vector<float> inv_freq, const std::string& revision) {
  const Dtype element = Parse<Dtype>(nb::str(dtype).c_str(), "dtype");
  ModelSpec spec;
  spec.identity.name = name;
  spec.identity.revision = revision;
  spec.groups = {
      window == 0 ? LayerGroup::FullAttention(layers, kv_heads, head_dim, element)
                  : LayerGroup::SlidingWindow(layers, kv_heads, head_dim, element, window, sinks)};
  spec.groups[0].inv_freq = std::move(inv_freq);
  Check(spec.Validate());
  return spec;
}

void BindSpec(nb::module_& module) {
  nb::class_<ModelSpec>(module, "ModelSpec",
                        R"(What a model's state looks like; no groups: token ids alone.

A value that is not changed any more. extent_tokens: a power of two in [64, 4096], or 0: chosen.
Raises InvalidArgument naming the field.)")
      .def(
          "__init__",
          [](ModelSpec* self, const std::variant<std::string, ModelIdentity>& identity,
             std::vector<LayerGroup> groups, const ModelVariant& variant, const ShardSpec& shard,
             std::vector<LogicalGroup> logical, uint32_t extent_tokens) {
            ModelSpec spec;
            if (const auto* const name = std::get_if<std::string>(&identity)) {
              spec.identity.name = *name;
            } else {
              spec.identity = std::get<ModelIdentity>(identity);
            }
            spec.variant = variant;
            spec.shard = shard;
            spec.groups = std::move(groups);
            spec.logical = std::move(logical);
            spec.extent_tokens = extent_tokens;
            Check(spec.Validate());
            new (self) ModelSpec(std::move(spec));
          },
          "identity"_a, "groups"_a = std::vector<LayerGroup>(), nb::kw_only(),
          "variant"_a = ModelVariant(), "shard"_a = ShardSpec(),
          "logical"_a = std::vector<LogicalGroup>(), "extent_tokens"_a = 0)
      .def_static(
          "of", &SpecOfOneGroup, "name"_a, nb::kw_only(), "layers"_a, "kv_heads"_a, "head_dim"_a,
          "dtype"_a, "window"_a = 0, "sinks"_a = 0, "inv_freq"_a = std::vector<float>(),
          "revision"_a = "",
          "A model of one layer group: `layers` layers with K and V of\n"
          "[kv_heads][head_dim] a token. window: tokens that a sliding window holds; 0: all.")
      .def_ro("identity", &ModelSpec::identity)
      .def_ro("variant", &ModelSpec::variant)
      .def_ro("shard", &ModelSpec::shard)
      .def_ro("groups", &ModelSpec::groups)
      .def_ro("logical", &ModelSpec::logical)
      .def_ro("extent_tokens", &ModelSpec::extent_tokens)
      .def_prop_ro("token_bytes", &ModelSpec::token_bytes, "KV bytes of one position, all groups.")
      .def("first_difference", &ModelSpec::FirstDifference, "other"_a,
           "The first field in which two specs differ, or an empty text.")
      .def(ByValue())
      .def("__repr__", [](const ModelSpec& self) {
        return "ModelSpec('" + self.identity.name + "', " + std::to_string(self.groups.size()) +
               " groups, token_bytes=" + std::to_string(self.token_bytes()) + ")";
      });

  nb::class_<Model>(module, "Model", "A model that a store knows: Store.register_model makes one.")
      .def_prop_ro("id", [](const Model& self) { return static_cast<uint64_t>(self.id); })
      .def_prop_ro("spec", [](const Model& self) { return *self.spec; })
      .def(ByValue())
      .def("__hash__", [](const Model& self) { return static_cast<uint64_t>(self.id); })
      .def("__repr__", [](const Model& self) {
        return "Model(" + std::to_string(static_cast<uint64_t>(self.id)) + ", '" +
               self.spec->identity.name + "')";
      });
}

}  // namespace

std::shared_ptr<const ModelSpec> SpecOf(nb::handle model) {
  Model registered;
  if (nb::try_cast(model, registered)) return registered.spec;
  ModelSpec spec;
  if (nb::try_cast(model, spec)) return std::make_shared<const ModelSpec>(std::move(spec));
  BadArgument("model: neither a ModelSpec nor a Model");
}

void BindModel(nb::module_& module) {
  BindIdentity(module);
  BindShard(module);
  BindSpec(module);
}

}  // namespace cairn::python
