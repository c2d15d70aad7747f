// SPDX-License-Identifier: Apache-2.0
//
// WriteBatch: several changes of branches, all of them or none.
#include "api/python/src/call.h"
#include "api/python/src/names.h"

namespace cairn::python {

namespace {

// The batch keeps alive all that its changes name. It may be written several times.
struct PyBatch {
  nb::object store;
  WriteBatch batch{};
  std::vector<std::shared_ptr<const ModelSpec>> created{};
  std::vector<nb::object> branches{};
  std::vector<std::shared_ptr<DeltaArguments>> arguments{};
};

// A Branch, or the index of one that the batch makes.
WriteBatch::Target TargetOf(PyBatch* self, nb::handle which) {
  if (nb::isinstance<PyBranch>(which)) {
    self->branches.push_back(nb::borrow(which));
    return {nb::cast<const PyBranch&>(which).branch};
  }
  int index = 0;
  if (!nb::try_cast(which, index)) BadArgument("branch: is neither a Branch nor an index");
  if (index < 0 || static_cast<size_t>(index) >= self->created.size()) {
    BadArgument("branch: " + std::to_string(index) + " is no index that this batch returned");
  }
  return {index};
}

// The spec of the branch's model.
std::shared_ptr<const ModelSpec> SpecOf(const PyBatch& self, nb::handle which,
                                        const WriteBatch::Target& target) {
  if (target.created < 0) return nb::cast<const PyBranch&>(which).Spec();
  return self.created[static_cast<size_t>(target.created)];
}

int Create(PyBatch& self, const Model& model, std::string name, std::string ns, const Keep& keep) {
  nb::cast<OpenStore&>(self.store).CheckModel(model);
  self.created.push_back(model.spec);
  return self.batch.Create(model.id, {.name = std::move(name), .ns = std::move(ns), .keep = keep});
}

int Fork(PyBatch& self, nb::handle from, uint64_t position, std::string name, std::string ns,
         const Keep& keep) {
  const WriteBatch::Target target = TargetOf(&self, from);
  self.created.push_back(SpecOf(self, from, target));
  return self.batch.Fork(target, position,
                         {.name = std::move(name), .ns = std::move(ns), .keep = keep});
}

void Append(PyBatch& self, nb::handle to, nb::handle tokens, nb::handle kv, nb::handle sampler,
            nb::handle metadata, nb::handle spans, bool exact,
            std::optional<uint64_t> expected_length) {
  const WriteBatch::Target target = TargetOf(&self, to);
  const std::shared_ptr<const ModelSpec> spec = kv.is_none() ? nullptr : SpecOf(self, to, target);
  auto arguments =
      std::make_unique<DeltaArguments>(spec.get(), tokens, kv, sampler, metadata, spans, exact);
  self.batch.Append(target, arguments->delta(), expected_length);
  self.arguments.push_back(std::move(arguments));
}

std::vector<nb::object> Write(PyBatch& self, std::string_view durability, bool ends_turn,
                              std::optional<double> timeout) {
  AppendOptions options;
  options.durability = Parse<Durability>(durability, "durability");
  options.ends_turn = ends_turn;
  options.timeout_ns = TimeoutNs(timeout);
  Store& store = nb::cast<OpenStore&>(self.store).store();
  const WriteBatch batch = self.batch;  // Another thread may add a change meanwhile.
  Store::WriteResult result = Take(Unlocked([&]() -> Result<Store::WriteResult> {
    CAIRN_ASSIGN_OR_RETURN(Store::WriteResult written, store.Write(batch, options));
    CAIRN_RETURN_IF_ERROR(written.ticket.Wait(options.timeout_ns));
    return written;
  }));
  std::vector<nb::object> made;
  for (size_t i = 0; i < result.created.size(); ++i) {
    made.push_back(nb::cast(PyBranch{
        .branch = std::move(result.created[i]), .store = self.store, .spec = self.created[i]}));
  }
  return made;
}

void BindChanges(nb::class_<PyBatch>& batch) {
  batch
      .def("create", &Create, "model"_a, "name"_a = "", nb::kw_only(), "namespace"_a = "",
           "keep"_a = Keep(),
           nb::sig("def create(self, model: Model, name: str = '', *, namespace: str = '', "
                   "keep: Keep = ...) -> int"),
           "As Store.create_branch; the index of the new branch, for later changes of this batch.")
      .def("fork", &Fork, "branch"_a, "position"_a, "name"_a = "", nb::kw_only(),
           "namespace"_a = "", "keep"_a = Keep(),
           nb::sig("def fork(self, branch: Branch | int, position: int, name: str = '', *, "
                   "namespace: str = '', keep: Keep = ...) -> int"),
           "As Branch.fork; the index of the new branch.")
      .def("append", &Append, "branch"_a, "tokens"_a = nb::none(), "kv"_a = nb::none(),
           nb::kw_only(), "sampler"_a = nb::none(), "metadata"_a = nb::none(),
           "spans"_a = nb::none(), "exact"_a = true, "expected_length"_a = nb::none(),
           nb::sig("def append(self, branch: Branch | int, tokens: typing.Any = None, "
                   "kv: KvView | KvBuffer | None = None, *, sampler: SamplerState | None = None, "
                   "metadata: Metadata | None = None, "
                   "spans: collections.abc.Sequence[ContentSpan] | None = None, "
                   "exact: bool = True, expected_length: int | None = None) -> None"),
           "As Branch.append, of host memory. Keeps the arrays: they must not change before write.")
      .def(
          "rewind",
          [](PyBatch& self, nb::handle branch, uint64_t length) {
            self.batch.Rewind(TargetOf(&self, branch), length);
          },
          "branch"_a, "length"_a,
          nb::sig("def rewind(self, branch: Branch | int, length: int) -> None"),
          "As Branch.rewind.")
      .def(
          "rename",
          [](PyBatch& self, nb::handle branch, std::string name) {
            self.batch.Rename(TargetOf(&self, branch), std::move(name));
          },
          "branch"_a, "name"_a,
          nb::sig("def rename(self, branch: Branch | int, name: str) -> None"), "As Branch.rename.")
      .def(
          "drop",
          [](PyBatch& self, nb::handle branch) { self.batch.Drop(TargetOf(&self, branch)); },
          "branch"_a, nb::sig("def drop(self, branch: Branch | int) -> None"), "As Branch.drop.");
}

}  // namespace

void BindBatch(nb::class_<OpenStore>& store, nb::module_& module) {
  nb::class_<PyBatch> batch(
      module, "WriteBatch",
      R"(Changes of one or many branches: all of them or none, also after a crash.

Store.batch makes one. A branch is a Branch, or the index that create or fork of this batch
returned. Adding a change checks little; write checks all of them. At most 4 MiB of tokens and KV in
all. For one thread at a time.)");
  BindChanges(batch);
  batch.def("__len__", [](const PyBatch& self) { return self.batch.ops().size(); })
      .def("write", &Write, nb::kw_only(), "durability"_a = "process", "ends_turn"_a = false,
           "timeout"_a = nb::none(),
           nb::sig("def write(self, *, durability: str = 'process', ends_turn: bool = False, "
                   "timeout: float | None = None) -> list[Branch]"),
           "Applies all changes and blocks until they are durable; the branches that create and\n"
           "fork made, by their index. May be called again. A failure applies nothing and names "
           "the\n"
           "change: InvalidArgument (also an empty or too large batch, or KV of a GPU), Conflict\n"
           "(expected_length), NotFound, AlreadyExists, Busy (a large append of one of the "
           "branches\n"
           "is under way). UnknownOutcome and DeadlineExceeded: it may be applied.");
  store.def(
      "batch", [](nb::handle self) { return PyBatch{.store = nb::borrow(self)}; },
      nb::sig("def batch(self) -> WriteBatch"), "An empty batch of changes.");
}

}  // namespace cairn::python
