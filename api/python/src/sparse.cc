// SPDX-License-Identifier: Apache-2.0
//
// Sparse arenas and sessions: pieces of a branch's KV in slots on a GPU.
#include "api/python/src/sparse.h"

#include "api/python/src/names.h"
#include "api/python/src/size.h"

namespace cairn::python {

nb::dict StatsDict(const SparseStats& stats) {
  nb::dict dict;
  dict["fetches"] = stats.fetches;
  dict["wanted"] = stats.wanted;
  dict["faults"] = stats.faults;
  dict["left_out"] = stats.left_out;
  dict["pages_read"] = stats.pages_read;
  dict["page_bytes_read"] = stats.page_bytes_read;
  return dict;
}

namespace {

Pieces::Rules RulesOf(const PySession& session) {
  return {.what = "pieces",
          .heads = session.heads(),
          .max = session.options().wanted_max,
          .max_name = "wanted_max",
          .ordinal = session.gpu().ordinal()};
}

nb::object Fetch(nb::handle self, uint32_t layer, nb::handle pieces, uintptr_t stream,
                 std::string_view mode, std::optional<double> timeout) {
  auto& session = nb::cast<PySession&>(self);
  const Pieces taken(pieces, RulesOf(session));
  SparseWanted wanted{.layer = layer,
                      .stream = stream,
                      .mode = Parse<SparseMode>(mode, "mode"),
                      .timeout_ns = TimeoutNs(timeout)};
  taken.Into(&wanted);
  uint64_t number = 0;
  const SparseView view = Take(Unlocked([&] { return session.Fetch(wanted, &number); }));
  const bool may_be_read = wanted.on_device && wanted.mode == SparseMode::kRelaxed;
  session.Keep(layer, number, may_be_read ? nb::borrow(pieces) : nb::object());
  return nb::cast(PyView{.view = view, .session = nb::borrow(self), .count = wanted.count});
}

nb::object Capture(nb::handle self, uint32_t layer, nb::handle pieces, uintptr_t stream) {
  auto& session = nb::cast<PySession&>(self);
  const Pieces taken(pieces, RulesOf(session));
  SparseWanted wanted{.layer = layer, .stream = stream, .mode = SparseMode::kRelaxed};
  taken.Into(&wanted);
  const SparseView view = Take(Unlocked([&] { return session.session().Capture(wanted); }));
  session.KeepCaptured(nb::borrow(pieces));
  return nb::cast(PyView{.view = view, .session = nb::borrow(self), .count = wanted.count});
}

// An exception of `launch` is raised once all sessions know that it failed.
void Replay(const std::vector<PySession*>& sessions, const nb::callable& launch, uintptr_t stream) {
  // The list may change meanwhile. A session ends, and what it keeps for graphs goes, as an object
  // does: behind the replay, and without the interpreter's lock.
  std::vector<nb::object> kept;
  std::vector<SparseSession> values;
  for (const PySession* session : sessions) {
    if (session == nullptr) BadArgument("sessions: None is no session");
    kept.push_back(nb::find(session));
    values.push_back(session->session());
  }
  std::optional<nb::python_error> raised;
  const Status status = Unlocked([&] {
    return SparseSession::Replay(values, stream, [&] {
      const nb::gil_scoped_acquire interpreter;
      try {
        launch();
        return Status::Ok();
      } catch (nb::python_error& error) {
        raised.emplace(std::move(error));
        return Status(StatusCode::kIoError, "sparse: launch raised an exception");
      }
    });
  });
  if (raised.has_value()) throw std::move(*raised);
  Check(status);
}

void Prefetch(PySession& self, uint32_t layer, nb::handle pieces, std::optional<double> timeout) {
  const Pieces taken(pieces, RulesOf(self));
  SparseWanted wanted{.layer = layer, .timeout_ns = TimeoutNs(timeout)};
  taken.Into(&wanted);
  Check(Unlocked([&] { return self.session().Prefetch(wanted); }));
}

std::unique_ptr<PyArena> MakeArena(nb::handle self, const Gpu& gpu,
                                   const SizeArgument& pinned_bytes,
                                   const SizeArgument& device_bytes) {
  const Store& store = nb::cast<OpenStore&>(self).store();
  const SparseArenaOptions options{.pinned_bytes = SizeOf(pinned_bytes, "pinned_bytes"),
                                   .device_bytes = SizeOf(device_bytes, "device_bytes")};
  SparseArena arena = Take(Unlocked([&] { return SparseArena::Make(store, gpu, options); }));
  return std::make_unique<PyArena>(std::move(arena), gpu, nb::borrow(self));
}

uint32_t PlaneBits(const std::vector<uint32_t>& planes) {
  uint32_t bits = 0;
  for (const uint32_t plane : planes) {
    if (plane >= 32) BadArgument("planes: there is no plane " + std::to_string(plane));
    bits |= 1u << plane;
  }
  return bits;
}

std::unique_ptr<PySession> Open(PyArena& self, const PyBranch& branch, uint32_t group,
                                const std::vector<uint32_t>& planes, uint32_t piece_tokens,
                                uint32_t page_tokens, uint32_t slots, uint32_t wanted_max,
                                std::optional<uint64_t> end, uint64_t tokens_max, bool warm) {
  const SparseOptions options{.group = group,
                              .planes = PlaneBits(planes),
                              .piece_tokens = piece_tokens,
                              .page_tokens = page_tokens,
                              .slots = slots,
                              .wanted_max = wanted_max,
                              .end = end.value_or(UINT64_MAX),
                              .tokens_max = tokens_max,
                              .warm = warm};
  std::shared_ptr<const ModelSpec> spec = branch.Spec();
  SparseSession session = Take(Unlocked([&] { return self.arena.Open(branch.branch, options); }));
  return std::make_unique<PySession>(std::move(session), self.gpu, self.store, std::move(spec),
                                     options);
}

void BindArena(nb::class_<OpenStore>& store, nb::module_& module) {
  nb::class_<PyArena>(module, "SparseArena",
                      R"(Memory that sparse sessions of one store on one GPU share.

Store.sparse_arena makes it. Pages of KV lie in its pinned memory, shared by sessions and forks;
sessions take their buffers from its room on the device. It lives as long as a session of it.)")
      .def(
          "open", &Open, "branch"_a, nb::kw_only(), "group"_a = 0,
          "planes"_a = std::vector<uint32_t>{1}, "piece_tokens"_a = 4, "page_tokens"_a = 0,
          "slots"_a = 1024, "wanted_max"_a = 512, "end"_a = nb::none(), "tokens_max"_a = 0,
          "warm"_a = true,
          nb::sig("def open(self, branch: Branch, *, group: int = 0, "
                  "planes: collections.abc.Sequence[int] = (1,), piece_tokens: int = 4, "
                  "page_tokens: int = 0, slots: int = 1024, wanted_max: int = 512, "
                  "end: int | None = None, tokens_max: int = 0, warm: bool = True) "
                  "-> SparseSession"),
          "A session of the branch's tokens before `end` (None: all that there are). planes: one\n"
          "or two of the group, with as many heads; by default the values. piece_tokens: tokens "
          "of\n"
          "a piece, whose bytes are a multiple of 16. page_tokens: tokens that come from the disk\n"
          "at once; 0: 64 KiB of them. slots: pieces that the device keeps, by layer and head.\n"
          "wanted_max: pieces of a fetch, by head. tokens_max: room for so many tokens, for "
          "extend;\n"
          "0: for those that there are. warm: it begins with the pieces that an "
          "earlier\n"
          "session had when it was saved, which are read; False: with empty slots. Blocks for "
          "that,\n"
          "and while memory of the device is made. InvalidArgument names the option; OutOfMemory: "
          "device_bytes do not "
          "suffice.")
      .def_prop_ro(
          "pinned_bytes", [](const PyArena& self) { return self.arena.pinned_bytes(); },
          "Bytes of pinned memory that pages are in.")
      .def_prop_ro(
          "device_bytes", [](const PyArena& self) { return self.arena.device_bytes(); },
          "Bytes of the device that sessions have.")
      .def(
          "stats", [](const PyArena& self) { return StatsDict(self.arena.stats()); },
          nb::sig("def stats(self) -> dict[str, int]"), "As SparseSession.stats, of all sessions.");
  store.def(
      "sparse_arena", &MakeArena, "gpu"_a, nb::kw_only(), "pinned_bytes"_a, "device_bytes"_a,
      nb::sig("def sparse_arena(self, gpu: Gpu, *, pinned_bytes: int | str, "
              "device_bytes: int | str) "
              "-> SparseArena"),
      "Memory for sparse sessions on one of the store's GPUs: pinned_bytes of the host, from\n"
      "1 MiB, for pages, and device_bytes for what sessions keep there. Blocks while it is "
      "pinned.\n"
      "InvalidArgument, OutOfMemory.");
}

void BindSession(nb::module_& module) {
  nb::class_<PySession>(module, "SparseSession",
                        R"(Brings pieces of a branch's KV into slots on a GPU, and keeps them there
until the slots are needed for others: exact LRU, by layer and head.

SparseArena.open makes it. It reads the branch as it was then. Piece p is tokens
[p * piece_tokens, (p + 1) * piece_tokens) of one head. Thread-safe; calls of one session wait for
each other. Its memory goes with the last object that refers to it: tensors of its views, too.)")
      .def(
          "fetch", &Fetch, "layer"_a, "pieces"_a, nb::kw_only(), "stream"_a = 0,
          "mode"_a = "strict", "timeout"_a = nb::none(),
          nb::sig("def fetch(self, layer: int, pieces: typing.Any, *, stream: int = 0, "
                  "mode: str = 'strict', timeout: float | None = None) -> SparseView"),
          "Pieces of each head into slots. pieces: [heads, count], of one head [count] as well, "
          "of\n"
          "int32, uint32 or int64, none twice in a head; on the device of int32 or uint32, "
          "written\n"
          "by the stream before. stream: a cudaStream_t, as torch.cuda.current_stream()\n"
          ".cuda_stream; 0: the default one. mode \"strict\": all is there when the call returns;\n"
          "blocks for the device, and for the disk where a page is missing. \"relaxed\": what no\n"
          "page has is left out (slot -1), and read in the background for the next time; does not\n"
          "block. timeout: seconds, of strict ones. InvalidArgument (a piece beyond the end, or\n"
          "twice: strict calls name it), Busy (relaxed: the layer's last fetch has not ended),\n"
          "DeadlineExceeded, NotFound (the branch was dropped), Evicted, Corruption, IoError,\n"
          "OutOfMemory (the pages of a piece do not fit the arena), InvalidState (the store is\n"
          "closed).")
      .def(
          "capture", &Capture, "layer"_a, "pieces"_a, nb::kw_only(), "stream"_a,
          nb::sig("def capture(self, layer: int, pieces: typing.Any, *, stream: int) "
                  "-> SparseView"),
          "Puts a relaxed fetch into the graph that `stream` is captured into (torch.cuda.graph).\n"
          "The view holds after each replay. pieces: on the device, where each replay reads them\n"
          "anew; the session keeps them. Each capture of a layer has as many. Nothing runs yet;\n"
          "never blocks. InvalidArgument: in host memory, another count, or no such graph.")
      .def_static(
          "replay", &Replay, "sessions"_a, "launch"_a, nb::kw_only(), "stream"_a = 0,
          nb::sig("def replay(sessions: collections.abc.Sequence[SparseSession], "
                  "launch: collections.abc.Callable[[], object], *, stream: int = 0) -> None"),
          "Launches a graph with captured fetches: launch(), say CUDAGraph.replay, enqueues it in\n"
          "`stream`, once, and does not call these sessions. sessions: all that are captured in\n"
          "it, each once. It must be launched in no other way. Blocks until the last replay of\n"
          "each has ended; what that left out is read in the background. An exception of launch\n"
          "goes on to the caller. InvalidArgument: a session twice, none, or of several GPUs.")
      .def("prefetch", &Prefetch, "layer"_a, "pieces"_a, nb::kw_only(), "timeout"_a = nb::none(),
           nb::sig("def prefetch(self, layer: int, pieces: typing.Any, *, "
                   "timeout: float | None = None) -> None"),
           "The pages of these pieces, in host memory as for fetch, are read in the background,\n"
           "after what fetches need. timeout: seconds; pages whose reading has not begun by then\n"
           "are left. Never blocks. Busy: earlier ones are still under way, and\n"
           "nothing was noted.")
      .def(
          "save", [](PySession& self) { Check(Unlocked([&] { return self.session().Save(); })); },
          nb::sig("def save(self) -> None"),
          "Which pieces are in slots becomes a state of the branch, which the next session begins\n"
          "with. Blocks for the device and the disk. Conflict (the branch was rewound to before\n"
          "what the session has), NotFound (the branch was dropped).")
      .def(
          "extend",
          [](PySession& self, std::optional<uint64_t> end) {
            Check(Unlocked([&] { return self.session().Extend(end.value_or(UINT64_MAX)); }));
          },
          "end"_a = nb::none(), nb::sig("def extend(self, end: int | None = None) -> None"),
          "The branch has grown: its tokens before `end` (None: all) may be wanted from here on.\n"
          "Pieces in slots stay there. Blocks for the device. Conflict: the branch was rewound\n"
          "to before what the session has; InvalidArgument: more than tokens_max.")
      .def_prop_ro(
          "pieces", [](const PySession& self) { return self.session().pieces(); },
          "Whole pieces that the branch has: those that may be wanted are below.")
      .def_prop_ro(
          "device_bytes", [](const PySession& self) { return self.session().device_bytes(); },
          "Bytes of the device that it has.")
      .def_prop_ro("heads", &PySession::heads, "Heads of each of its planes.")
      .def(
          "stats", [](const PySession& self) { return StatsDict(self.session().stats()); },
          nb::sig("def stats(self) -> dict[str, int]"),
          "Counts since it was opened: fetches (calls), wanted (pieces), faults (pieces that no\n"
          "page had when they were first asked for), left_out (of these, those of relaxed "
          "fetches),\n"
          "pages_read, page_bytes_read.");
}

}  // namespace

void BindSparse(nb::class_<OpenStore>& store, nb::module_& module) {
  BindArena(store, module);
  BindSession(module);
  BindSparseView(module);
}

}  // namespace cairn::python
