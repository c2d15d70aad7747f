// SPDX-License-Identifier: Apache-2.0
//
// Store in Python; its state is in open_store.cc.
#include "api/python/src/store.h"

#include "api/python/src/model.h"
#include "api/python/src/names.h"
#include "api/python/src/sparse.h"

namespace cairn::python {

namespace {

nb::object BranchOf(nb::handle store, Branch branch,
                    std::shared_ptr<const ModelSpec> spec = nullptr) {
  return nb::cast(
      PyBranch{.branch = std::move(branch), .store = nb::borrow(store), .spec = std::move(spec)});
}

// A path for the operating system: from text, bytes, or os.PathLike.
std::string FolderOf(nb::handle path) {
  const auto name = nb::cast<nb::bytes>(nb::module_::import_("os").attr("fsencode")(path));
  std::string folder(name.c_str(), name.size());
  if (folder.find('\0') != std::string::npos) BadArgument("path: has a zero byte");
  return folder;
}

BranchOptions BranchOptionsOf(std::string name, std::string ns, const Keep& keep,
                              std::string_view durability) {
  return {.name = std::move(name),
          .ns = std::move(ns),
          .keep = keep,
          .durability = Parse<Durability>(durability, "durability")};
}

void BindOpening(nb::class_<OpenStore>& store) {
  store
      .def(
          "__init__",
          [](nb::pointer_and_handle<OpenStore> self, const nb::object& path,
             const nb::kwargs& arguments) {
            const std::string folder = FolderOf(path);
            Options options = OptionsOf(arguments);
            const nb::object on_event =
                arguments.contains("on_event") ? arguments["on_event"] : nb::none();
            Listening listening(on_event, &options);
            const nb::object opened = nb::module_::import_("cairn._exit").attr("opened");
            new (self.p) OpenStore(Take(Unlocked([&] { return Store::Open(folder, options); })),
                                   std::move(listening));
            opened(self.h);
          },
          "path"_a, "options"_a, nb::sig(OpeningSignature().c_str()))
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](OpenStore& self, const nb::object&, const nb::object&, const nb::object&) {
            Check(self.CloseAndTell());
          },
          "type"_a = nb::none(), "value"_a = nb::none(), "traceback"_a = nb::none())
      .def(
          "close", [](OpenStore& self) { Check(self.CloseAndTell()); },
          "Makes everything durable, ends all threads and gives memory back. Idempotent; blocks.\n"
          "After it every call on the store and its branches raises InvalidState.");
}

void BindModels(nb::class_<OpenStore>& store) {
  store
      .def(
          "register_model",
          [](OpenStore& self, const ModelSpec& spec, std::string_view durability) {
            const auto level = Parse<Durability>(durability, "durability");
            const ModelId id =
                Take(Unlocked([&] { return self.store().RegisterModel(spec, level); }));
            Model model{.id = id, .spec = std::make_shared<const ModelSpec>(spec)};
            self.SetSpec(id, model.spec);
            return model;
          },
          "spec"_a, nb::kw_only(), "durability"_a = "power",
          "The Model of a spec; idempotent. Blocks on the disk once. ModelMismatch: the identity "
          "is\n"
          "known with other shapes, names the field.")
      .def(
          "models",
          [](OpenStore& self) {
            std::vector<Model> models;
            for (ModelInfo& info : Unlocked([&] { return self.store().Models(); })) {
              models.push_back(
                  {.id = info.id, .spec = std::make_shared<const ModelSpec>(std::move(info.spec))});
            }
            return models;
          },
          "All models that are registered.");
}

void BindBranches(nb::class_<OpenStore>& store) {
  store
      .def(
          "create_branch",
          [](nb::handle self, const Model& model, std::string name, std::string ns,
             const Keep& keep, std::string_view durability) {
            const BranchOptions options =
                BranchOptionsOf(std::move(name), std::move(ns), keep, durability);
            auto& open = nb::cast<OpenStore&>(self);
            open.CheckModel(model);
            return BranchOf(
                self, Take(Unlocked([&] { return open.store().CreateBranch(model.id, options); })),
                model.spec);
          },
          "model"_a, "name"_a = "", nb::kw_only(), "namespace"_a = "", "keep"_a = Keep(),
          "durability"_a = "process",
          "A new, empty branch. name: unique in its namespace, at most 256 bytes; empty: unnamed.\n"
          "AlreadyExists: the name is taken. ModelMismatch: the model is another store's.",
          nb::sig("def create_branch(self, model: Model, name: str = '', *, namespace: str = '', "
                  "keep: Keep = ..., durability: str = 'process') -> Branch"))
      .def(
          "find_branch",
          [](nb::handle self, const std::string& name, const std::string& ns) {
            auto& open = nb::cast<OpenStore&>(self);
            return BranchOf(self,
                            Take(Unlocked([&] { return open.store().FindBranch(name, ns); })));
          },
          "name"_a, nb::kw_only(), "namespace"_a = "", "The branch of that name. NotFound.",
          nb::sig("def find_branch(self, name: str, *, namespace: str = '') -> Branch"))
      .def(
          "get_branch",
          [](nb::handle self, uint64_t id) {
            auto& open = nb::cast<OpenStore&>(self);
            return BranchOf(self,
                            Take(Unlocked([&] { return open.store().GetBranch(BranchId{id}); })));
          },
          "id"_a, "The branch of that Branch.id. NotFound.",
          nb::sig("def get_branch(self, id: int) -> Branch"))
      .def(
          "list_branches",
          [](OpenStore& self, const std::string& prefix, const std::string& ns, size_t limit,
             const std::string& cursor) {
            BranchPage page = Take(
                Unlocked([&] { return self.store().ListBranches(ns, prefix, limit, cursor); }));
            return std::pair(std::move(page.branches), std::move(page.cursor));
          },
          "prefix"_a = "", nb::kw_only(), "namespace"_a = "", "limit"_a = 1000, "cursor"_a = "",
          nb::sig("def list_branches(self, prefix: str = '', *, namespace: str = '', limit: int = "
                  "1000, "
                  "cursor: str = '') -> tuple[list[BranchInfo], str]"),
          "(BranchInfo of branches whose names begin with prefix, by name; cursor of the next "
          "page,\n"
          "empty: no more).")
      .def(
          "namespaces",
          [](OpenStore& self) { return Take(Unlocked([&] { return self.store().Namespaces(); })); },
          "Namespaces that have branches or a policy, by name. Reads the index; blocks.")
      .def(
          "set_namespace",
          [](OpenStore& self, const std::string& ns, const NamespacePolicy& policy,
             std::string_view durability) {
            const auto level = Parse<Durability>(durability, "durability");
            Check(Unlocked([&] { return self.store().SetNamespace(ns, policy, level); }));
          },
          "namespace"_a, "policy"_a, nb::kw_only(), "durability"_a = "power",
          "Sets what a namespace may hold and what may go of it.",
          nb::sig("def set_namespace(self, namespace: str, policy: NamespacePolicy, *, "
                  "durability: str = 'power') -> None"));
}

void BindCare(nb::class_<OpenStore>& store) {
  store
      .def(
          "flush", [](OpenStore& self) { Check(Unlocked([&] { return self.store().Flush(); })); },
          "Everything so far becomes durable (\"power\"). Blocks.")
      .def(
          "compact",
          [](OpenStore& self) { Check(Unlocked([&] { return self.store().Compact(); })); },
          "Seals all of the log into packed tables. Blocks; happens by itself in the background.\n"
          "Busy: a read or an append, which the message names, keeps the log from being given "
          "back.")
      .def(
          "refresh",
          [](OpenStore& self) {
            return Take(Unlocked([&] { return self.store().Refresh(); })).changed;
          },
          "Of a store that is read only: shows what became durable since. Whether anything did.")
      .def(
          "checkpoint",
          [](OpenStore& self, const nb::object& path) {
            const std::string folder = FolderOf(path);
            return Take(Unlocked([&] { return self.store().Checkpoint(folder); }));
          },
          "path"_a, "A copy of the store that opens as one; tables are hard links. Blocks.")
      .def(
          "pause_background",
          [](OpenStore& self) { Check(Unlocked([&] { return self.store().PauseBackground(); })); },
          "Nothing is sealed or given back until resume_background was called as often.")
      .def(
          "resume_background",
          [](OpenStore& self) { Check(Unlocked([&] { return self.store().ResumeBackground(); })); })
      .def(
          "verify",
          [](OpenStore& self, std::string_view level) {
            const auto depth = Parse<VerifyLevel>(level, "level");
            return Take(Unlocked([&] { return self.store().Verify(depth); }));
          },
          "level"_a = "all",
          "Checks \"headers\", the \"index\" too, or \"all\" payload against its checksums. Reads "
          "from\n"
          "the disk; blocks. The report lists every damage; none: all is well.")
      .def(
          "metrics",
          [](OpenStore& self) {
            return MetricsDict(Unlocked([&] { return self.store().Metrics(); }));
          },
          nb::sig("def metrics(self) -> dict[str, typing.Any]"),
          "Numbers of the store by name (docs/metrics.md); of the histograms save, restore and\n"
          "append_delay a dict of count, sum_ns, max_ns, p50_ns, p95_ns, p99_ns.")
      .def(
          "prometheus_text",
          [](OpenStore& self, const std::string& label) {
            return Unlocked([&] { return self.store().PrometheusText(label); });
          },
          "store"_a = "", "The metrics in the text format of Prometheus.")
      .def(
          "alarms",
          [](OpenStore& self) {
            std::vector<std::pair<std::string, std::string>> alarms;
            for (const Alarm& alarm : Unlocked([&] { return self.store().Health(); }).alarms) {
              alarms.emplace_back(alarm.name, alarm.message);
            }
            return alarms;
          },
          "(name, message) of what is wrong with the store; none: it is healthy.")
      .def_prop_ro(
          "poisoned",
          [](OpenStore& self) -> nb::object {
            const Status status = Unlocked([&] { return self.store().poisoned(); });
            return status.ok() ? nb::none() : MakeError(status);
          },
          "None while the log can be written, else the error that ended that.",
          nb::sig("def poisoned(self) -> cairn._errors.Error | None"))
      .def_prop_ro(
          "io_name", [](OpenStore& self) { return self.store().io_name(); },
          "\"io_uring\", \"threads\" or \"memory\".")
      // For cairn/_loop.py.
      .def("_sweep", &OpenStore::Sweep)
      .def_prop_ro("sync_method", [](OpenStore& self) { return self.store().sync_method(); })
      .def_prop_ro(
          "recovery_note", [](OpenStore& self) { return self.store().recovery_note(); },
          "The end of the log that recovery had to drop, and with recovery=\"set_aside\" what\n"
          "else is gone, in words; empty: nothing.");
}

}  // namespace

void BindStore(nb::module_& module) {
  BindStoreValues(module);
  nb::class_<OpenStore> store(module, "Store", nb::is_weak_referenceable(),
                              R"(An open store: a directory that one process owns for writing.

Store(path, **options): path is a directory, or ":memory:", which goes with the object. Options are
keywords, as cairn/options.h explains them: a size is a number of bytes, or text as "20GiB".
recovery: "refuse" or "set_aside"; evict: "never", "kv" or "branches"; index: "prefix" or "none";
on_fatal: "poison" or "abort"; backend: "auto", "uring" or "threads".

on_event: called with each line of text that the store tells, by a thread of its own, which ends
with close(). What it raises is shown and forgotten. It may call the store. An on_event that holds
the store, as a bound method of its owner does, keeps it open until close().

A context manager: leaving closes. All methods are thread-safe, and run without the interpreter's
lock. Branches keep the object alive; what is open when the interpreter ends is closed then. Does
not survive os.fork(). Raises NotFound (no store there),
Locked (another process has it), InvalidArgument (an option), Corruption, IoError, NoSpace and
others.)");
  BindOpening(store);
  BindModels(store);
  BindBranches(store);
  BindCare(store);
  BindFind(store, module);
  BindBlend(store, module);
  BindBatch(store, module);
  BindSparse(store, module);
  BindStoreExport(store, module);
}

}  // namespace cairn::python
