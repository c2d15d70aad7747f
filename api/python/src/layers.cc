// SPDX-License-Identifier: Apache-2.0
//
// Planes and layer groups. They are immutable values, since a list that Python gets out of one is a
// copy, and a change to that copy would be lost silently.
#include "api/python/src/common.h"
#include "api/python/src/names.h"
#include "cairn/model.h"

namespace cairn::python {

namespace {

void BindPlane(nb::module_& module) {
  nb::class_<Plane>(module, "Plane", R"(One tensor kind of a layer group: K, V, a latent, a state.

row_bytes: what one head of one token holds, head_dim times the bytes of the dtype. role: "key",
"value", "latent", "scale", "state" or "opaque". dtype: "bf16", "f16", "f32", "f8e4m3", "f8e5m2",
"i8", "u8" or "opaque". sealed_as: "lossless", or "int8", which is lossy. state_parts: into how many
equal parts, one a head, a row of a state divides; 0: not said.)")
      .def(
          "__init__",
          [](Plane* self, std::string name, std::string_view role, uint32_t heads,
             uint32_t row_bytes, const nb::object& dtype, const RotarySpec& rotary,
             std::string_view sealed_as, uint32_t state_parts) {
            new (self) Plane{.name = std::move(name),
                             .role = Parse<PlaneRole>(role, "role"),
                             .heads = heads,
                             .row_bytes = row_bytes,
                             .dtype = Parse<Dtype>(nb::str(dtype).c_str(), "dtype"),
                             .rotary = rotary,
                             .sealed_as = Parse<SealedAs>(sealed_as, "sealed_as"),
                             .state_parts = state_parts};
          },
          "name"_a, nb::kw_only(), "role"_a, "heads"_a = 1, "row_bytes"_a, "dtype"_a,
          "rotary"_a = RotarySpec(), "sealed_as"_a = "lossless", "state_parts"_a = 0)
      .def_ro("name", &Plane::name)
      .def_prop_ro("role", [](const Plane& self) { return Word(self.role); })
      .def_ro("heads", &Plane::heads)
      .def_ro("row_bytes", &Plane::row_bytes)
      .def_prop_ro("dtype", [](const Plane& self) { return Word(self.dtype); })
      .def_ro("rotary", &Plane::rotary)
      .def_prop_ro("sealed_as", [](const Plane& self) { return Word(self.sealed_as); })
      .def_ro("state_parts", &Plane::state_parts)
      .def(ByValue())
      .def("__repr__", [](const Plane& self) {
        return "Plane('" + self.name + "', role='" + Word(self.role) +
               "', heads=" + std::to_string(self.heads) +
               ", row_bytes=" + std::to_string(self.row_bytes) + ", dtype='" + Word(self.dtype) +
               "')";
      });

  nb::class_<RetentionRule>(module, "Retention",
                            R"(Which rows of a group a branch of L tokens needs to go on.

kind: "all"; "window" (the newest `window` rows and the first `sinks`); "chunk_local" (rows since
the last multiple of `chunk`); "checkpoint" (a recurrent state: row L - 1 is the state after L
tokens); "per_request" (one state for the whole request: row 0). All numbers are tokens.)")
      .def(
          "__init__",
          [](RetentionRule* self, std::string_view kind, uint32_t window, uint32_t sinks,
             uint32_t chunk) {
            new (self) RetentionRule{.kind = Parse<Retention>(kind, "kind"),
                                     .window = window,
                                     .sinks = sinks,
                                     .chunk = chunk};
          },
          "kind"_a = "all", nb::kw_only(), "window"_a = 0, "sinks"_a = 0, "chunk"_a = 0)
      .def_prop_ro("kind", [](const RetentionRule& self) { return Word(self.kind); })
      .def_ro("window", &RetentionRule::window)
      .def_ro("sinks", &RetentionRule::sinks)
      .def_ro("chunk", &RetentionRule::chunk)
      .def(ByValue());
}

// Settings that all presets share besides their shapes.
LayerGroup Adorned(LayerGroup group, std::string name, std::string_view pairing,
                   std::vector<float> inv_freq, float mscale) {
  if (!name.empty()) group.name = std::move(name);
  for (Plane& plane : group.planes) {
    if (pairing.empty() || plane.rotary.state != RotaryState::kApplied) continue;
    plane.rotary.pairing = Parse<RotaryPairing>(pairing, "pairing");
  }
  group.inv_freq = std::move(inv_freq);
  group.mscale = mscale;
  return group;
}

void BindPresets(nb::class_<LayerGroup>& group) {
  group
      .def_static(
          "full_attention",
          [](uint32_t layers, uint32_t kv_heads, uint32_t head_dim, const nb::object& dtype,
             std::string name, std::string_view pairing, std::vector<float> inv_freq,
             float mscale) {
            return Adorned(LayerGroup::FullAttention(layers, kv_heads, head_dim,
                                                     Parse<Dtype>(nb::str(dtype).c_str(), "dtype")),
                           std::move(name), pairing, std::move(inv_freq), mscale);
          },
          nb::kw_only(), "layers"_a, "kv_heads"_a, "head_dim"_a, "dtype"_a, "name"_a = "",
          "pairing"_a = "", "inv_freq"_a = std::vector<float>(), "mscale"_a = 1.0F,
          "Layers with planes K and V of [kv_heads][head_dim] a token; keys count as rotated, in\n"
          "halves unless `pairing` says otherwise.")
      .def_static(
          "sliding_window",
          [](uint32_t layers, uint32_t kv_heads, uint32_t head_dim, const nb::object& dtype,
             uint32_t window, uint32_t sinks, std::string name, std::string_view pairing,
             std::vector<float> inv_freq, float mscale) {
            return Adorned(LayerGroup::SlidingWindow(layers, kv_heads, head_dim,
                                                     Parse<Dtype>(nb::str(dtype).c_str(), "dtype"),
                                                     window, sinks),
                           std::move(name), pairing, std::move(inv_freq), mscale);
          },
          nb::kw_only(), "layers"_a, "kv_heads"_a, "head_dim"_a, "dtype"_a, "window"_a,
          "sinks"_a = 0, "name"_a = "", "pairing"_a = "", "inv_freq"_a = std::vector<float>(),
          "mscale"_a = 1.0F,
          "As full_attention, of which only the newest `window` and the first `sinks` tokens are\n"
          "needed.")
      .def_static(
          "mla",
          [](uint32_t layers, uint32_t latent_bytes, uint32_t rotary_bytes, const nb::object& dtype,
             std::string name, std::string_view pairing, std::vector<float> inv_freq,
             float mscale) {
            return Adorned(LayerGroup::Mla(layers, latent_bytes, rotary_bytes,
                                           Parse<Dtype>(nb::str(dtype).c_str(), "dtype")),
                           std::move(name), pairing, std::move(inv_freq), mscale);
          },
          nb::kw_only(), "layers"_a, "latent_bytes"_a, "rotary_bytes"_a, "dtype"_a, "name"_a = "",
          "pairing"_a = "", "inv_freq"_a = std::vector<float>(), "mscale"_a = 1.0F,
          "Layers with DeepSeek's latent of so many bytes a token, and the rotated key beside it.")
      .def_static(
          "recurrent",
          [](uint32_t layers, uint32_t state_bytes, std::string name) {
            LayerGroup made = LayerGroup::Recurrent(layers, state_bytes);
            if (!name.empty()) made.name = std::move(name);
            return made;
          },
          nb::kw_only(), "layers"_a, "state_bytes"_a, "name"_a = "",
          "Layers with one state of so many bytes; row L - 1 is the state after L tokens.");
}

void BindGroup(nb::module_& module) {
  nb::class_<LayerGroup> group(module, "LayerGroup", R"(Layers that share a cache shape.

inv_freq: rotary frequencies as the engine uses them, one a pair of elements; mscale: its scale on
cosine and sine. No frequencies: both are unset. optional: a restore may do without (draft heads).
packing: empty, or how the engine has rearranged the bytes in its blocks, whose planes are "opaque":
no other packing is given this one's state.)");
  group
      .def(
          "__init__",
          [](LayerGroup* self, std::string name, uint32_t layers, std::vector<Plane> planes,
             const RetentionRule& retention, bool optional, std::vector<float> inv_freq,
             float mscale, std::string packing) {
            new (self) LayerGroup{.name = std::move(name),
                                  .layers = layers,
                                  .planes = std::move(planes),
                                  .retention = retention,
                                  .optional = optional,
                                  .packing = std::move(packing),
                                  .inv_freq = std::move(inv_freq),
                                  .mscale = mscale};
          },
          "name"_a, nb::kw_only(), "layers"_a, "planes"_a, "retention"_a = RetentionRule(),
          "optional"_a = false, "inv_freq"_a = std::vector<float>(), "mscale"_a = 1.0F,
          "packing"_a = "")
      .def_ro("name", &LayerGroup::name)
      .def_ro("layers", &LayerGroup::layers)
      .def_ro("planes", &LayerGroup::planes)
      .def_ro("retention", &LayerGroup::retention)
      .def_ro("optional", &LayerGroup::optional)
      .def_ro("inv_freq", &LayerGroup::inv_freq)
      .def_ro("mscale", &LayerGroup::mscale)
      .def_ro("packing", &LayerGroup::packing)
      .def_prop_ro("token_bytes", &LayerGroup::token_bytes,
                   "Bytes of one position: all layers and planes.")
      .def(ByValue())
      .def("__repr__", [](const LayerGroup& self) {
        return "LayerGroup('" + self.name + "', layers=" + std::to_string(self.layers) +
               ", retention='" + Word(self.retention.kind) +
               "', token_bytes=" + std::to_string(self.token_bytes()) + ")";
      });
  BindPresets(group);
}

}  // namespace

void BindLayers(nb::module_& module) {
  BindPlane(module);
  BindGroup(module);
}

}  // namespace cairn::python
