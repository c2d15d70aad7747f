// SPDX-License-Identifier: Apache-2.0
//
// Exports and imports in Python: methods of stores and branches.
#include "cairn/export.h"

#include "api/python/src/branch.h"
#include "api/python/src/model.h"
#include "api/python/src/store.h"

namespace cairn::python {

namespace {

std::string FileOf(nb::handle path) {
  const auto name = nb::cast<nb::bytes>(nb::module_::import_("os").attr("fsencode")(path));
  std::string file(name.c_str(), name.size());
  if (file.find('\0') != std::string::npos) BadArgument("path: has a zero byte");
  return file;
}

}  // namespace

void BindBranchExport(nb::class_<PyBranch>& branch, nb::module_& module) {
  nb::class_<ExportInfo>(module, "ExportInfo", R"(What Branch.export wrote.

snapshot_id names model, tokens and content spans up to end; base_snapshot_id, of a part, those up
to begin. kv_ends: how far KV reaches, one number a layer group.)")
      .def_ro("snapshot_id", &ExportInfo::snapshot_id)
      .def_ro("base_snapshot_id", &ExportInfo::base_snapshot_id)
      .def_ro("begin", &ExportInfo::begin)
      .def_ro("end", &ExportInfo::end)
      .def_ro("kv_ends", &ExportInfo::kv_ends)
      .def_ro("kv_bytes", &ExportInfo::kv_bytes)
      .def_ro("file_bytes", &ExportInfo::file_bytes);
  branch.def(
      "export",
      [](const PyBranch& self, nb::handle path, uint64_t begin, std::optional<uint64_t> end,
         std::optional<uint64_t> kv_begin, bool replace) {
        const std::string file = FileOf(path);
        const ExportOptions options{.begin = begin,
                                    .end = end.value_or(UINT64_MAX),
                                    .kv_begin = kv_begin.value_or(UINT64_MAX),
                                    .replace = replace};
        return Take(Unlocked([&] { return ExportBranch(self.branch, file, options); }));
      },
      "path"_a, nb::kw_only(), "begin"_a = 0, "end"_a = nb::none(), "kv_begin"_a = nb::none(),
      "replace"_a = false,
      "Writes the branch as a safetensors file (docs/export.md). begin: a part, whose KV begins "
      "at\n"
      "kv_begin, one position earlier if that is None. AlreadyExists: the file, without replace.",
      nb::sig("def export(self, path: object, *, begin: int = 0, end: int | None = None, "
              "kv_begin: int | None = None, replace: bool = False) -> ExportInfo"));
}

void BindStoreExport(nb::class_<OpenStore>& store, nb::module_& module) {
  nb::class_<ForestInfo>(module, "ForestInfo", "What export_forest wrote, or import_forest made.")
      .def_ro("models", &ForestInfo::models)
      .def_ro("branches", &ForestInfo::branches)
      .def_ro("tokens", &ForestInfo::tokens, "What branches share counts once.")
      .def_ro("file_bytes", &ForestInfo::file_bytes);
  store.def(
      "import_branch",
      [](nb::handle self, nb::handle path, std::optional<std::string> name,
         std::optional<std::string> ns, const Model* model) {
        auto& open = nb::cast<OpenStore&>(self);
        const std::string file = FileOf(path);
        ImportOptions options{.name = std::move(name), .ns = std::move(ns)};
        if (model != nullptr) {
          open.CheckModel(*model);
          options.model = model->id;
        }
        ImportInfo made = Take(Unlocked([&] { return ImportBranch(open.store(), file, options); }));
        return nb::cast(
            PyBranch{.branch = std::move(made.branch), .store = nb::borrow(self), .spec = nullptr});
      },
      "path"_a, nb::kw_only(), "name"_a = nb::none(), "namespace"_a = nb::none(),
      "model"_a.none() = nb::none(),
      "Makes the branch of a file that Branch.export wrote, or continues the one that a part goes\n"
      "on from. name, namespace: None is the file's. model: it must be of this one.",
      nb::sig("def import_branch(self, path: object, *, name: str | None = None, namespace: str | "
              "None = None, model: Model | None = None) -> Branch"));
  store.def(
      "export_forest",
      [](OpenStore& self, nb::handle path, std::optional<std::string> ns, bool replace) {
        const std::string file = FileOf(path);
        const ForestOptions options{.ns = std::move(ns), .replace = replace};
        return Take(Unlocked([&] { return ExportForest(self.store(), file, options); }));
      },
      "path"_a, nb::kw_only(), "namespace"_a = nb::none(), "replace"_a = false,
      "Writes all branches, or those of a namespace, without KV: one MessagePack file.",
      nb::sig("def export_forest(self, path: object, *, namespace: str | None = None, replace: "
              "bool = False) -> ForestInfo"));
  store.def(
      "import_forest",
      [](OpenStore& self, nb::handle path) {
        const std::string file = FileOf(path);
        return Take(Unlocked([&] { return ImportForest(self.store(), file); }));
      },
      "path"_a, "Makes all branches of a file that export_forest wrote.");
}

}  // namespace cairn::python
