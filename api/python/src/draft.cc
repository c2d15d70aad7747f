// SPDX-License-Identifier: Apache-2.0
//
// Drafts: positions that are filled layer by layer, and appended as one.
#include "api/python/src/branch.h"
#include "api/python/src/names.h"

namespace cairn::python {

namespace {

struct PyDraft {
  Draft draft;
  nb::object store;
  std::shared_ptr<const ModelSpec> spec;
  std::vector<nb::object> borrowed;  // Views of CUDA memory that may still be read.
};

void Put(PyDraft& self, uint32_t layer, nb::handle kv, uintptr_t gpu_ready) {
  const KvView* const view = ViewOf(kv, self.spec.get(), "kv", false);
  if (view == nullptr) BadArgument("kv: is None");
  if (view->memory == MemoryKind::kCuda) {
    self.borrowed.push_back(nb::borrow(kv));
    Check(Unlocked([&] { return self.draft.PutFromGpu(layer, *view, gpu_ready); }));
    return;
  }
  Check(Unlocked([&] {
    for (const GroupView& group : view->groups) {
      Status put = self.draft.Put(layer, group);
      if (!put.ok()) return put;
    }
    return Status::Ok();
  }));
}

nb::object Commit(PyDraft& self, nb::handle tokens, nb::handle kv, nb::handle sampler,
                  nb::handle metadata, nb::handle spans, bool exact, std::string_view durability,
                  std::optional<uint64_t> expected_length, bool ends_turn,
                  std::optional<double> timeout) {
  auto arguments = std::make_unique<DeltaArguments>(self.spec.get(), tokens, kv, sampler, metadata,
                                                    spans, exact);
  AppendOptions options;
  options.durability = Parse<Durability>(durability, "durability");
  options.expected_length = expected_length;
  options.ends_turn = ends_turn;
  options.timeout_ns = TimeoutNs(timeout);
  const Told told(self.store);
  options.queue = told.queue();
  options.user_data = told.number();
  Ticket ticket = Take(Unlocked([&] { return self.draft.Commit(arguments->delta(), options); }));
  std::vector<nb::object> owners = std::move(self.borrowed);
  self.borrowed.clear();
  owners.push_back(Owned(std::move(arguments)));
  return MakeTicket(Call(self.store, std::move(ticket), Call::Kind::kAppend, std::move(owners)),
                    told);
}

void Abort(PyDraft& self) {
  Unlocked([&] { self.draft.Abort(); });
  // Destructors of these objects may call back into this.
  std::vector<nb::object> gone;
  gone.swap(self.borrowed);
}

}  // namespace

void BindDraft(nb::class_<PyBranch>& branch, nb::module_& module) {
  nb::class_<PyDraft>(module, "Draft",
                      R"(Positions that are filled layer by layer, then appended as one.

Branch.begin_append makes one. A context manager: leaving without commit aborts it. put may be
called from several threads, for different layers.)")
      .def("put", &Put, "layer"_a, "kv"_a, nb::kw_only(), "gpu_ready"_a = 0,
           nb::sig("def put(self, layer: int, kv: KvView, *, gpu_ready: int = 0) -> None"),
           "Copies one layer of the positions that the view describes; its tensors are of that "
           "layer\n"
           "alone. Of CUDA memory it is gathered later, behind the event gpu_ready, and must stay "
           "as\n"
           "it is until the ticket of commit is released.")
      .def(
          "commit", &Commit, "tokens"_a = nb::none(), "kv"_a = nb::none(), nb::kw_only(),
          "sampler"_a = nb::none(), "metadata"_a = nb::none(), "spans"_a = nb::none(),
          "exact"_a = true, "durability"_a = "process", "expected_length"_a = nb::none(),
          "ends_turn"_a = false, "timeout"_a = nb::none(),
          nb::sig("def commit(self, tokens: typing.Any = None, kv: KvView | None = None, *, "
                  "sampler: SamplerState | None = None, metadata: Metadata | None = None, "
                  "spans: collections.abc.Sequence[ContentSpan] | None = None, "
                  "exact: bool = True, durability: str = 'process', "
                  "expected_length: int | None = None, ends_turn: bool = False, "
                  "timeout: float | None = None) -> Ticket"),
          "Appends the first len(tokens) positions, which may be fewer than were put. kv: only of\n"
          "groups that keep states. Conflict: the branch was changed since begin_append.")
      .def("abort", &Abort, "Forgets what was put.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__",
          [](PyDraft& self, const nb::object&, const nb::object&, const nb::object&) {
            Abort(self);
          },
          "type"_a = nb::none(), "value"_a = nb::none(), "traceback"_a = nb::none());
  branch.def(
      "begin_append",
      [](const PyBranch& self, uint64_t positions) {
        return PyDraft{
            .draft = Take(Unlocked([&] { return Branch(self.branch).BeginAppend(positions); })),
            .store = self.store,
            .spec = self.Spec(),
            .borrowed = {}};
      },
      "positions"_a, nb::sig("def begin_append(self, positions: int) -> Draft"),
      "Staging memory for so many positions from `length` on. Busy: there is none right now.");
}

}  // namespace cairn::python
