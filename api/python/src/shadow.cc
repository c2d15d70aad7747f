// SPDX-License-Identifier: Apache-2.0
//
// The settings of a shadow, and the shadows of a branch.
#include "api/python/src/shadow.h"

#include "api/python/src/names.h"

namespace cairn::python {

namespace {

void BindSpec(nb::module_& module) {
  nb::class_<ShadowSpec>(module, "ShadowSpec",
                         R"(What a shadow is made of, by kv head and layer. A value.

chunk_tokens: 1, 2, 4, 8 or 16, what is selected and fetched as one. keys: where those of selected
chunks come from, "exact" (fetched), "int8" or "int4" (of codes on the device), "low_rank".
landmark_bits: 16, 8 or 4. Always attended to are the newest local_tokens, the first sink_tokens
and chunks that their landmark does not stand for: outlier_share of all, or outlier_chunks if not 0.
budget_tokens: what a step selects besides; 0: 2048, or an eighth of the context if that is less.
rank, rank_energy: of low_rank keys alone, just one of them. A value out of range is refused, by its
name, where the spec is used.)")
      .def(
          "__init__",
          [](ShadowSpec* self, uint32_t chunk_tokens, std::string_view keys, uint32_t landmark_bits,
             uint32_t local_tokens, uint32_t sink_tokens, double outlier_share,
             uint32_t outlier_chunks, uint32_t budget_tokens, uint32_t rank, double rank_energy) {
            new (self) ShadowSpec{.chunk_tokens = chunk_tokens,
                                  .keys = Parse<ShadowKeys>(keys, "keys"),
                                  .landmark_bits = landmark_bits,
                                  .local_tokens = local_tokens,
                                  .sink_tokens = sink_tokens,
                                  .outlier_share = outlier_share,
                                  .outlier_chunks = outlier_chunks,
                                  .budget_tokens = budget_tokens,
                                  .rank = rank,
                                  .rank_energy = rank_energy};
          },
          nb::kw_only(), "chunk_tokens"_a = 4, "keys"_a = "int4", "landmark_bits"_a = 4,
          "local_tokens"_a = 32, "sink_tokens"_a = 8, "outlier_share"_a = 0.003,
          "outlier_chunks"_a = 0, "budget_tokens"_a = 0, "rank"_a = 0, "rank_energy"_a = 0.0)
      .def_static("published", &ShadowSpec::Published, "key_channels"_a = 1024,
                  "The setting that ShadowKV was published with; key_channels: of a layer's keys "
                  "over\n"
                  "all heads.")
      .def_ro("chunk_tokens", &ShadowSpec::chunk_tokens)
      .def_prop_ro("keys", [](const ShadowSpec& self) { return Word(self.keys); })
      .def_ro("landmark_bits", &ShadowSpec::landmark_bits)
      .def_ro("local_tokens", &ShadowSpec::local_tokens)
      .def_ro("sink_tokens", &ShadowSpec::sink_tokens)
      .def_ro("outlier_share", &ShadowSpec::outlier_share)
      .def_ro("outlier_chunks", &ShadowSpec::outlier_chunks)
      .def_ro("budget_tokens", &ShadowSpec::budget_tokens)
      .def_ro("rank", &ShadowSpec::rank)
      .def_ro("rank_energy", &ShadowSpec::rank_energy)
      .def(ByValue());
}

void BindInfo(nb::module_& module) {
  nb::class_<ShadowInfo>(module, "ShadowInfo", R"(What there is of a shadow.

tokens: of the context; covered: of these, by the shadow, 0: too few, attention is dense. chunks:
that are covered, by kv head and layer; of these always_chunks are attended to in any case, and
budget_chunks are selected in a step. table_bytes: on the disk, 0: there is no table. tokens_read:
whose keys were read to make it, 0: it was there.)")
      .def_ro("tokens", &ShadowInfo::tokens)
      .def_ro("covered", &ShadowInfo::covered)
      .def_ro("chunks", &ShadowInfo::chunks)
      .def_ro("always_chunks", &ShadowInfo::always_chunks)
      .def_ro("budget_chunks", &ShadowInfo::budget_chunks)
      .def_ro("table_bytes", &ShadowInfo::table_bytes)
      .def_ro("tokens_read", &ShadowInfo::tokens_read)
      .def("__repr__", [](const ShadowInfo& self) {
        return "ShadowInfo(tokens=" + std::to_string(self.tokens) +
               ", covered=" + std::to_string(self.covered) + ")";
      });
}

ShadowOf Of(const ShadowSpec& spec, uint32_t group, std::optional<uint64_t> end) {
  return {.spec = spec, .group = group, .end = end.value_or(UINT64_MAX)};
}

void BindOfBranch(nb::class_<PyBranch>& branch) {
  branch.def(
      "build_shadow",
      [](const PyBranch& self, const ShadowSpec& spec, uint32_t group,
         std::optional<uint64_t> end) {
        const ShadowOf of = Of(spec, group, end);
        return Take(Unlocked([&] { return BuildShadow(self.branch, of); }));
      },
      "spec"_a = ShadowSpec(), nb::kw_only(), "group"_a = 0, "end"_a = nb::none(),
      nb::sig("def build_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, "
              "end: int | None = None) -> ShadowInfo"),
      "Makes the shadow of the first `end` tokens where there is none. Blocks: reads the keys.\n"
      "InvalidArgument names the field, or says which key is not finite.");
  branch.def(
      "find_shadow",
      [](const PyBranch& self, const ShadowSpec& spec, uint32_t group,
         std::optional<uint64_t> end) {
        const ShadowOf of = Of(spec, group, end);
        return Take(Unlocked([&] { return FindShadow(self.branch, of); }));
      },
      "spec"_a = ShadowSpec(), nb::kw_only(), "group"_a = 0, "end"_a = nb::none(),
      nb::sig("def find_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, "
              "end: int | None = None) -> ShadowInfo"),
      "NotFound: there is none of this spec that covers as much.");
  branch.def(
      "drop_shadow",
      [](const PyBranch& self, const ShadowSpec& spec, uint32_t group,
         std::optional<uint64_t> end) {
        const ShadowOf of = Of(spec, group, end);
        Check(Unlocked([&] { return DropShadow(self.branch, of); }));
      },
      "spec"_a = ShadowSpec(), nb::kw_only(), "group"_a = 0, "end"_a = nb::none(),
      nb::sig("def drop_shadow(self, spec: ShadowSpec = ..., *, group: int = 0, "
              "end: int | None = None) -> None"),
      "Forgets it, here and for the forks that share it. NotFound.");
}

}  // namespace

void BindShadow(nb::class_<PyBranch>& branch, nb::module_& module) {
  BindSpec(module);
  BindInfo(module);
  BindOfBranch(branch);
  BindShadowSession(module);
  BindShadowView(module);
}

}  // namespace cairn::python
