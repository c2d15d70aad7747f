// SPDX-License-Identifier: Apache-2.0
//
// Content of an append besides ids and KV: the sampler, metadata, content spans.
#include "api/python/src/bytes.h"
#include "api/python/src/common.h"
#include "api/python/src/names.h"
#include "cairn/branch.h"

namespace cairn::python {

namespace {

void BindSampler(nb::module_& module) {
  nb::class_<SamplerState>(module, "SamplerState",
                           R"(The sampler, so that the next token comes out the same.

generator: "none", "philox" (philox_seed, philox_offset), "mt19937" (blob) or "named" (blob_name
says whose state `blob` is, blob_version which form of it). cairn.sampler makes one of a generator
of numpy or torch, and sets it again. last_logits: float32, optional.)")
      .def(
          "__init__",
          [](SamplerState* self, std::string_view generator, uint64_t philox_seed,
             uint64_t philox_offset, std::string blob_name, uint32_t blob_version, nb::bytes blob,
             double temperature, double top_p, double min_p, double repetition_penalty,
             uint32_t top_k, std::vector<float> last_logits) {
            new (self) SamplerState{.generator = Parse<GeneratorKind>(generator, "generator"),
                                    .philox_seed = philox_seed,
                                    .philox_offset = philox_offset,
                                    .blob_name = std::move(blob_name),
                                    .blob_version = blob_version,
                                    .blob = BytesOf(blob),
                                    .temperature = temperature,
                                    .top_p = top_p,
                                    .min_p = min_p,
                                    .repetition_penalty = repetition_penalty,
                                    .top_k = top_k,
                                    .last_logits = std::move(last_logits)};
          },
          "generator"_a = "none", nb::kw_only(), "philox_seed"_a = 0, "philox_offset"_a = 0,
          "blob_name"_a = "", "blob_version"_a = 0, "blob"_a = nb::bytes("", 0),
          "temperature"_a = 1.0, "top_p"_a = 1.0, "min_p"_a = 0.0, "repetition_penalty"_a = 1.0,
          "top_k"_a = 0, "last_logits"_a = std::vector<float>())
      .def_prop_ro("generator", [](const SamplerState& self) { return Word(self.generator); })
      .def_ro("philox_seed", &SamplerState::philox_seed)
      .def_ro("philox_offset", &SamplerState::philox_offset)
      .def_ro("blob_name", &SamplerState::blob_name)
      .def_ro("blob_version", &SamplerState::blob_version)
      .def_prop_ro("blob", [](const SamplerState& self) { return PythonBytes(self.blob); })
      .def_ro("temperature", &SamplerState::temperature)
      .def_ro("top_p", &SamplerState::top_p)
      .def_ro("min_p", &SamplerState::min_p)
      .def_ro("repetition_penalty", &SamplerState::repetition_penalty)
      .def_ro("top_k", &SamplerState::top_k)
      .def_ro("last_logits", &SamplerState::last_logits)
      .def(ByValue());
}

}  // namespace

void BindState(nb::module_& module) {
  BindSampler(module);
  nb::class_<AppMetadata>(module, "Metadata", "Bytes of the application's own, with their type.")
      .def(
          "__init__",
          [](AppMetadata* self, nb::bytes bytes, std::string content_type) {
            new (self)
                AppMetadata{.content_type = std::move(content_type), .bytes = BytesOf(bytes)};
          },
          "bytes"_a, "content_type"_a = "")
      .def_prop_ro("bytes", [](const AppMetadata& self) { return PythonBytes(self.bytes); })
      .def_ro("content_type", &AppMetadata::content_type)
      .def(ByValue());

  nb::class_<ContentSpan>(module, "ContentSpan",
                          R"(Content that token ids alone do not identify (an image).

Positions [begin, end); hash: two numbers of 64 bits. atomic: no fork or rewind inside it.)")
      .def(
          "__init__",
          [](ContentSpan* self, uint64_t begin, uint64_t end, std::pair<uint64_t, uint64_t> hash,
             bool atomic) {
            new (self) ContentSpan{
                .begin = begin, .end = end, .hash = {hash.first, hash.second}, .atomic = atomic};
          },
          "begin"_a, "end"_a, "hash"_a, nb::kw_only(), "atomic"_a = false)
      .def_ro("begin", &ContentSpan::begin)
      .def_ro("end", &ContentSpan::end)
      .def_prop_ro("hash",
                   [](const ContentSpan& self) { return std::pair(self.hash[0], self.hash[1]); })
      .def_ro("atomic", &ContentSpan::atomic)
      .def(ByValue());

  nb::class_<Keep>(module, "Keep", R"(How long a branch is kept.

pinned: neither evicted nor expired. priority: 0 to 255; the lower goes first. ttl: seconds without
use after which it is dropped; 0: never for that reason.)")
      .def(
          "__init__",
          [](Keep* self, bool pinned, uint8_t priority, double ttl) {
            new (self)
                Keep{.pinned = pinned, .priority = priority, .ttl_ns = DurationNs(ttl, "ttl")};
          },
          nb::kw_only(), "pinned"_a = false, "priority"_a = 0, "ttl"_a = 0.0)
      .def_ro("pinned", &Keep::pinned)
      .def_ro("priority", &Keep::priority)
      .def_prop_ro("ttl", [](const Keep& self) { return static_cast<double>(self.ttl_ns) / 1e9; })
      .def(ByValue());
}

}  // namespace cairn::python
