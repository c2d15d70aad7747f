// SPDX-License-Identifier: Apache-2.0
//
// Values that a store returns about itself and its branches.
#include "api/python/src/names.h"
#include "api/python/src/size.h"
#include "api/python/src/store.h"

namespace cairn::python {

namespace {

void BindReports(nb::module_& module) {
  nb::class_<VerifyReport> report(module, "VerifyReport", "The result of Store.verify.");
  nb::class_<VerifyReport::Damage>(report, "Damage", "Where bytes fail their check, and how.")
      .def_ro("where", &VerifyReport::Damage::where, "A path below the store, and the offset.")
      .def_ro("what", &VerifyReport::Damage::what)
      .def_ro("sequence", &VerifyReport::Damage::sequence)
      .def("__repr__", [](const VerifyReport::Damage& self) {
        return "Damage('" + self.where + "', '" + self.what + "')";
      });
  report.def_ro("records", &VerifyReport::records)
      .def_ro("strips", &VerifyReport::strips)
      .def_ro("index_tables", &VerifyReport::index_tables)
      .def_ro("tables", &VerifyReport::tables)
      .def_ro("frames", &VerifyReport::frames)
      .def_ro("bytes", &VerifyReport::bytes)
      .def_ro("damages", &VerifyReport::damages)
      .def_prop_ro("ok", [](const VerifyReport& self) { return self.damages.empty(); });

  nb::class_<CheckpointInfo>(module, "CheckpointInfo", "The copy that Store.checkpoint made.")
      .def_ro("sequence", &CheckpointInfo::sequence)
      .def_ro("linked_tables", &CheckpointInfo::linked_tables)
      .def_ro("linked_bytes", &CheckpointInfo::linked_bytes)
      .def_ro("copied_tables", &CheckpointInfo::copied_tables)
      .def_ro("copied_bytes", &CheckpointInfo::copied_bytes);
}

void BindNamespaces(nb::module_& module) {
  nb::class_<NamespacePolicy>(module, "NamespacePolicy",
                              R"(What a namespace may hold, and what may go of it.

max_bytes: None is without a cap. evict: "never", "kv", "branches", or None: as the store says.
persist: "always", "turn_end", "reused" or "tokens_only". ttl: seconds, of branches that are made in
it; 0: for ever. index: "prefix" or "none": whether Store.find_prefix looks there;
"chunks": runs of ids with exact KV are indexed as well, wherever they stand.)")
      .def(
          "__init__",
          [](NamespacePolicy* self, const std::optional<SizeArgument>& max_bytes,
             std::optional<std::string> evict, std::string_view persist, double ttl,
             std::string_view index) {
            NamespacePolicy policy{
                .max_bytes = max_bytes.has_value() ? SizeOf(*max_bytes, "max_bytes") : UINT64_MAX,
                .persist = Parse<Persist>(persist, "persist"),
                .ttl_ns = DurationNs(ttl, "ttl"),
                .index = Parse<Index>(index, "index")};
            if (evict.has_value()) policy.evict = Parse<Evict>(*evict, "evict");
            new (self) NamespacePolicy(policy);
          },
          nb::kw_only(), "max_bytes"_a = nb::none(), "evict"_a = nb::none(), "persist"_a = "always",
          "ttl"_a = 0.0, "index"_a = "prefix")
      .def_prop_ro("max_bytes",
                   [](const NamespacePolicy& self) -> std::optional<uint64_t> {
                     if (self.max_bytes == UINT64_MAX) return {};
                     return self.max_bytes;
                   })
      .def_prop_ro("evict",
                   [](const NamespacePolicy& self) -> std::optional<std::string> {
                     if (!self.evict.has_value()) return {};
                     return Word(*self.evict);
                   })
      .def_prop_ro("persist", [](const NamespacePolicy& self) { return Word(self.persist); })
      .def_prop_ro(
          "ttl", [](const NamespacePolicy& self) { return static_cast<double>(self.ttl_ns) / 1e9; })
      .def_prop_ro("index", [](const NamespacePolicy& self) { return Word(self.index); })
      .def(ByValue());

  nb::class_<NamespaceInfo>(module, "NamespaceInfo", "A namespace and what it holds.")
      .def_ro("name", &NamespaceInfo::name)
      .def_ro("policy", &NamespaceInfo::policy)
      .def_ro("branches", &NamespaceInfo::branches)
      .def_ro("bytes", &NamespaceInfo::bytes);
}

void BindBranchInfo(nb::module_& module) {
  nb::class_<BranchInfo>(module, "BranchInfo", R"(What is known of a branch without reading it.

length: tokens. kv_lengths: positions with KV, one number a layer group. Times are nanoseconds since
1970.)")
      .def_prop_ro("id", [](const BranchInfo& self) { return static_cast<uint64_t>(self.id); })
      .def_ro("name", &BranchInfo::name)
      .def_ro("namespace", &BranchInfo::ns)
      .def_prop_ro("model_id",
                   [](const BranchInfo& self) { return static_cast<uint64_t>(self.model); })
      .def_ro("length", &BranchInfo::length)
      .def_ro("kv_lengths", &BranchInfo::kv_lengths)
      .def_ro("created_at_ns", &BranchInfo::created_at_ns)
      .def_ro("updated_at_ns", &BranchInfo::updated_at_ns)
      .def_ro("used_at_ns", &BranchInfo::used_at_ns)
      .def_ro("keep", &BranchInfo::keep)
      .def("__repr__", [](const BranchInfo& self) {
        return "BranchInfo('" + self.name + "', length=" + std::to_string(self.length) + ")";
      });

  nb::class_<KvHole>(module, "KvHole", "Positions [begin, end) of a layer group without KV.")
      .def_ro("group", &KvHole::group)
      .def_ro("begin", &KvHole::begin)
      .def_ro("end", &KvHole::end)
      .def("__repr__", [](const KvHole& self) {
        return "KvHole(group=" + std::to_string(self.group) + ", " + std::to_string(self.begin) +
               ", " + std::to_string(self.end) + ")";
      });

  nb::class_<PathStep>(module, "PathStep", "One stretch of the way from the root to the head.")
      .def_prop_ro("node", [](const PathStep& self) { return static_cast<uint64_t>(self.node); })
      .def_prop_ro("parent",
                   [](const PathStep& self) { return static_cast<uint64_t>(self.parent); })
      .def_ro("begin", &PathStep::begin)
      .def_ro("end", &PathStep::end)
      .def_prop_ro("owner", [](const PathStep& self) { return static_cast<uint64_t>(self.owner); });

  nb::class_<RestoreResult>(module, "RestoreResult", R"(What a restore delivered.

begin, end: tokens. kv_ends: for each group of the view the position up to which KV is in place.
bytes: of KV; of these hot_bytes came from memory, lossy_bytes from planes sealed as int8, and
approximate_bytes were appended with exact=False.)")
      .def_ro("begin", &RestoreResult::begin)
      .def_ro("end", &RestoreResult::end)
      .def_ro("kv_ends", &RestoreResult::kv_ends)
      .def_ro("bytes", &RestoreResult::bytes)
      .def_ro("hot_bytes", &RestoreResult::hot_bytes)
      .def_ro("lossy_bytes", &RestoreResult::lossy_bytes)
      .def_ro("approximate_bytes", &RestoreResult::approximate_bytes)
      .def("__repr__", [](const RestoreResult& self) {
        return "RestoreResult(begin=" + std::to_string(self.begin) +
               ", end=" + std::to_string(self.end) + ", bytes=" + std::to_string(self.bytes) + ")";
      });
}

}  // namespace

void BindStoreValues(nb::module_& module) {
  BindReports(module);
  BindNamespaces(module);
  BindBranchInfo(module);
}

}  // namespace cairn::python
