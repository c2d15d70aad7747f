// SPDX-License-Identifier: Apache-2.0
//
// Shadow sessions: the steps of sparse attention.
#include "api/python/src/names.h"
#include "api/python/src/shadow.h"

namespace cairn::python {

void KeptTensors::Ended(uintptr_t stream, uint64_t now) {
  const auto of = kept_.find(stream);
  if (of == kept_.end()) return;
  of->second.erase(of->second.begin(), of->second.lower_bound(now));
  if (of->second.empty()) kept_.erase(of);
}

void KeptTensors::Began(uint32_t layer, uintptr_t stream, uint64_t now) {
  const auto [last, is_first] = last_.try_emplace(layer);
  if (!is_first) Ended(last->second.stream, last->second.began);
  last->second = {.stream = stream, .began = now};
}

namespace {

// Rows in memory of the session's device: [count, elements of a row].
struct Rows {
  Rows(nb::handle object, const std::string& what, const PyShadowSession& of, uint32_t count,
       uint32_t plane)
      : tensor(ImportTensor(object, what)) {
    const uint32_t elements = of.row_elements(plane);
    if (tensor.shape.size() != 2 || tensor.shape[0] != count || tensor.shape[1] != elements) {
      BadArgument(what + ": must have the shape [" + std::to_string(count) + ", " +
                  std::to_string(elements) + "]; it is " + ShapeText(tensor.shape));
    }
    if (tensor.memory != MemoryKind::kCuda || tensor.device != of.gpu().ordinal()) {
      BadArgument(what + ": must be in memory of cuda:" + std::to_string(of.gpu().ordinal()));
    }
    if (!tensor.DenseFrom(1) || tensor.strides[0] < 0) {
      BadArgument(what + ": elements of a row must lie one behind the other");
    }
  }
  // Whether these are numbers of 16 bits like the plane's.
  bool IsOf(const Plane& plane) const {
    return tensor.dtype == DtypeName(plane.dtype) || tensor.dtype == "u16";
  }
  uint64_t stride() const { return static_cast<uint64_t>(tensor.strides[0]); }  // In bytes.
  Tensor tensor;
};

std::unique_ptr<PyShadowSession> Open(const PyArena& arena, const PyBranch& branch,
                                      uint32_t query_heads, const ShadowSpec& spec, uint32_t group,
                                      std::optional<uint64_t> end, uint32_t slots,
                                      uint32_t append_tokens, uint64_t tokens_max, bool build) {
  const ShadowOptions options{.spec = spec,
                              .group = group,
                              .end = end.value_or(UINT64_MAX),
                              .query_heads = query_heads,
                              .slots = slots,
                              .append_tokens = append_tokens,
                              .tokens_max = tokens_max,
                              .build = build};
  std::shared_ptr<const ModelSpec> model = branch.Spec();
  ShadowSession session =
      Take(Unlocked([&] { return ShadowSession::Open(arena.arena, branch.branch, options); }));
  return std::make_unique<PyShadowSession>(std::move(session), arena.gpu, arena.store,
                                           std::move(model), options);
}

void Select(PyShadowSession& self, uint32_t layer, nb::handle queries, float scale,
            uintptr_t stream) {
  const Rows rows(queries, "queries", self, self.options().query_heads, 0);
  const bool is_fp32 = rows.tensor.dtype == "f32";
  if (!is_fp32 && !rows.IsOf(self.plane(0))) {
    BadArgument("queries: must be f32 or, as keys are, " + std::string(Word(self.plane(0).dtype)) +
                "; they are " + rows.tensor.dtype);
  }
  const ShadowQuery query{.layer = layer,
                          .queries = rows.tensor.data,
                          .is_fp32 = is_fp32,
                          .head_stride = rows.stride() / rows.tensor.item_bytes(),
                          .scale = scale,
                          .stream = stream};
  Check(Unlocked([&] { return self.session().Select(query); }));
  self.kept().Add(stream, nb::borrow(queries));
}

void Fetch(PyShadowSession& self, uint32_t layer, uintptr_t stream, std::string_view mode,
           std::optional<double> timeout) {
  const ShadowFetch fetch{.layer = layer,
                          .stream = stream,
                          .mode = Parse<SparseMode>(mode, "mode"),
                          .timeout_ns = TimeoutNs(timeout)};
  const uint64_t now = self.kept().Now();
  Check(Unlocked([&] { return self.session().Fetch(fetch); }));
  if (self.session().info().budget_chunks == 0) return;  // It waited for nothing.
  self.kept().Began(layer, stream, now);
  if (fetch.mode == SparseMode::kStrict) self.kept().Ended(stream, now);
}

void Append(PyShadowSession& self, uint32_t layer, nb::handle keys, nb::handle values,
            uintptr_t stream) {
  const Rows key_rows(keys, "keys", self, self.heads(), 0);
  const Rows value_rows(values, "values", self, self.heads(), 1);
  if (!key_rows.IsOf(self.plane(0))) BadArgument("keys: are of " + key_rows.tensor.dtype);
  if (!value_rows.IsOf(self.plane(1))) BadArgument("values: are of " + value_rows.tensor.dtype);
  const ShadowRows rows{.layer = layer,
                        .keys = key_rows.tensor.data,
                        .values = value_rows.tensor.data,
                        .key_stride = key_rows.stride(),
                        .value_stride = value_rows.stride(),
                        .stream = stream};
  Check(Unlocked([&] { return self.session().Append(rows); }));
  self.kept().Add(stream, nb::borrow(keys));
  self.kept().Add(stream, nb::borrow(values));
}

void Prefetch(PyShadowSession& self, uint32_t layer, nb::handle chunks) {
  const Pieces taken(chunks, {.what = "chunks",
                              .heads = self.heads(),
                              .max = self.session().info().budget_chunks,
                              .max_name = "the budget"});
  SparseWanted wanted;
  taken.Into(&wanted);
  if (wanted.on_device) BadArgument("chunks: must be in host memory");
  Check(Unlocked(
      [&] { return self.session().Prefetch(layer, wanted.pieces, wanted.count, wanted.stride); }));
}

void BindSteps(nb::class_<PyShadowSession>& session) {
  session
      .def(
          "select", &Select, "layer"_a, "queries"_a, nb::kw_only(), "scale"_a = 0.0F,
          "stream"_a = 0,
          nb::sig("def select(self, layer: int, queries: typing.Any, *, scale: float = 0.0, "
                  "stream: int = 0) -> None"),
          "Chooses the chunks that the queries of a step need. queries: [query_heads, elements of "
          "a\n"
          "row] after rotation, on the device, of float32 or as keys are; query head g of kv head "
          "h\n"
          "in row h * (query_heads / heads) + g. scale: of scores; 0: 1 / sqrt(elements). stream:\n"
          "a cudaStream_t; 0: the default one. Enqueues; does not block. InvalidArgument.")
      .def("fetch", &Fetch, "layer"_a, nb::kw_only(), "stream"_a = 0, "mode"_a = "strict",
           "timeout"_a = nb::none(),
           nb::sig("def fetch(self, layer: int, *, stream: int = 0, mode: str = 'strict', "
                   "timeout: float | None = None) -> None"),
           "Brings the values of what was selected, and exact keys. mode, timeout and errors: as "
           "of\n"
           "SparseSession.fetch. InvalidState: nothing is selected for the layer.")
      .def(
          "rebuild",
          [](PyShadowSession& self, uint32_t layer, uintptr_t stream) {
            Check(Unlocked([&] { return self.session().Rebuild(layer, stream); }));
          },
          "layer"_a, nb::kw_only(), "stream"_a = 0,
          nb::sig("def rebuild(self, layer: int, *, stream: int = 0) -> None"),
          "Makes the keys of what was selected, of their codes. Enqueues; does not block.\n"
          "InvalidState.")
      .def(
          "view",
          [](nb::handle self, uint32_t layer) {
            const ShadowSession& of = nb::cast<const PyShadowSession&>(self).session();
            const ShadowView view = Take(Unlocked([&] { return of.View(layer); }));
            return PyShadowView{.view = view, .session = nb::borrow(self)};
          },
          "layer"_a, nb::sig("def view(self, layer: int) -> ShadowView"),
          "The KV that the step attends to. InvalidState: nothing was fetched for the layer.")
      .def("append", &Append, "layer"_a, "keys"_a, "values"_a, nb::kw_only(), "stream"_a = 0,
           nb::sig("def append(self, layer: int, keys: typing.Any, values: typing.Any, *, "
                   "stream: int = 0) -> None"),
           "A token more is attended to in this layer from now on. keys, values: [heads, elements "
           "of\n"
           "a row] on the device. The branch does not learn of it: append it there with "
           "exact=False.\n"
           "Enqueues; does not block. Busy: append_tokens are there, and extend makes room.")
      .def(
          "extend",
          [](PyShadowSession& self, std::optional<uint64_t> end) {
            Check(Unlocked([&] { return self.session().Extend(end.value_or(UINT64_MAX)); }));
          },
          "end"_a = nb::none(), nb::sig("def extend(self, end: int | None = None) -> None"),
          "The branch has grown: its tokens before `end` (None: all) are the context from here\n"
          "on. What was appended here and not there is gone. Blocks: reads the new keys.\n"
          "Conflict: the branch was rewound to before what the session has; InvalidArgument: more\n"
          "than tokens_max; InvalidState: low-rank keys, by rank_energy, need more vectors than "
          "there\n"
          "is room for, and another session has it; NotFound: they need a table, and build is "
          "False.")
      .def("prefetch", &Prefetch, "layer"_a, "chunks"_a,
           nb::sig("def prefetch(self, layer: int, chunks: typing.Any) -> None"),
           "Reads in the background what a fetch of these chunks would read from the disk. "
           "chunks:\n"
           "[heads, count], in host memory, at most the budget. Never blocks. Busy.");
}

}  // namespace

void BindShadowSession(nb::module_& module) {
  nb::class_<PyShadowSession> session(module, "ShadowSession",
                                      R"(Sparse attention over a branch by its shadow, on a GPU.

Of each layer of each step: append the token's rows, select by its queries, fetch, rebuild, view.
Thread-safe; calls of one session wait for each other. Tensors that a call reads are kept until a
later fetch of the stream shows that it has been done. Its memory goes with the last object that
refers to it: tensors of its views, too.)");
  session.def_static(
      "open", &Open, "arena"_a, "branch"_a, nb::kw_only(), "query_heads"_a, "spec"_a = ShadowSpec(),
      "group"_a = 0, "end"_a = nb::none(), "slots"_a = 0, "append_tokens"_a = 256,
      "tokens_max"_a = 0, "build"_a = true,
      nb::sig("def open(arena: SparseArena, branch: Branch, *, query_heads: int, "
              "spec: ShadowSpec = ..., group: int = 0, end: int | None = None, slots: int = 0, "
              "append_tokens: int = 256, tokens_max: int = 0, build: bool = True) "
              "-> ShadowSession"),
      "Finds or makes the shadow of the branch's first `end` tokens, and copies it to the device.\n"
      "query_heads: of a layer, a multiple of the kv heads. slots: chunks whose values stay on "
      "the\n"
      "device; 0: twice the budget. append_tokens: room for those that are added. tokens_max: the\n"
      "longest that extend may come to; 0: no longer than it is. build=False:\n"
      "NotFound where there is no shadow. Blocks. InvalidArgument names the option; OutOfMemory:\n"
      "the arena's device_bytes do not suffice.");
  BindSteps(session);
  session
      .def(
          "save",
          [](PyShadowSession& self) { Check(Unlocked([&] { return self.session().Save(); })); },
          nb::sig("def save(self) -> None"), "As SparseSession.save.")
      .def_prop_ro(
          "info", [](const PyShadowSession& self) { return self.session().info(); },
          nb::sig("def info(self) -> ShadowInfo"))
      .def_prop_ro(
          "device_bytes", [](const PyShadowSession& self) { return self.session().device_bytes(); },
          "Bytes of the device that it has, with those of its slots.")
      .def_prop_ro("heads", &PyShadowSession::heads, "Kv heads of a layer.")
      .def(
          "stats", [](const PyShadowSession& self) { return StatsDict(self.session().stats()); },
          nb::sig("def stats(self) -> dict[str, int]"), "As SparseSession.stats, of its fetches.");
}

}  // namespace cairn::python
