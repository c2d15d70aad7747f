// SPDX-License-Identifier: Apache-2.0
//
// Data into a branch and out of it.
#include <atomic>

#include "api/python/src/branch.h"
#include "api/python/src/names.h"

namespace cairn::python {

namespace {

// The words of a restore, and the span of them that C++ takes.
struct Progress {
  explicit Progress(size_t layers) : words(layers), progress{.layers = words} {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  std::vector<std::atomic<uint32_t>> words;
  LayerProgress progress;
};

void BindProgress(nb::module_& module) {
  nb::class_<Progress>(module, "LayerProgress",
                       R"(How far a restore is: one word a (group, layer) of its view, in order.

progress[i] is "pending", "enqueued" (of a GPU), "complete" or "failed". For one restore at a
time.)")
      .def(nb::init<size_t>(), "layers"_a)
      .def("__len__", [](const Progress& self) { return self.words.size(); })
      .def(
          "__getitem__",
          [](const Progress& self, size_t i) {
            if (i >= self.words.size()) throw nb::index_error();
            return Word(static_cast<LayerState>(self.words[i].load(std::memory_order_acquire)));
          },
          "index"_a);
}

AppendOptions OptionsOf(std::string_view durability, std::optional<uint64_t> expected_length,
                        bool ends_turn, std::optional<double> timeout, uintptr_t gpu_ready) {
  AppendOptions options;
  options.durability = Parse<Durability>(durability, "durability");
  options.expected_length = expected_length;
  options.ends_turn = ends_turn;
  options.timeout_ns = TimeoutNs(timeout);
  options.gpu_ready = gpu_ready;
  return options;
}

uint64_t Append(const PyBranch& self, nb::handle tokens, nb::handle kv, nb::handle sampler,
                nb::handle metadata, nb::handle spans, bool exact, std::string_view durability,
                std::optional<uint64_t> expected_length, bool ends_turn,
                std::optional<double> timeout, uintptr_t gpu_ready) {
  self.open().Sweep();
  const auto spec = self.SpecFor(kv);
  const DeltaArguments arguments(spec.get(), tokens, kv, sampler, metadata, spans, exact);
  const AppendOptions options =
      OptionsOf(durability, expected_length, ends_turn, timeout, gpu_ready);
  return Take(Unlocked([&] { return Branch(self.branch).AppendSync(arguments.delta(), options); }));
}

nb::object AppendAsync(const PyBranch& self, nb::handle tokens, nb::handle kv, nb::handle sampler,
                       nb::handle metadata, nb::handle spans, bool exact,
                       std::string_view durability, std::optional<uint64_t> expected_length,
                       bool ends_turn, std::optional<double> timeout, uintptr_t gpu_ready,
                       std::string_view overload, nb::handle queue, uint64_t user_data) {
  const auto spec = self.SpecFor(kv);
  auto arguments =
      std::make_unique<DeltaArguments>(spec.get(), tokens, kv, sampler, metadata, spans, exact);
  AppendOptions options = OptionsOf(durability, expected_length, ends_turn, timeout, gpu_ready);
  options.overload = Parse<Overload>(overload, "overload");
  const Told told(self.store, queue, user_data);
  options.queue = told.queue();
  options.user_data = told.number();
  Ticket ticket =
      Take(Unlocked([&] { return Branch(self.branch).Append(arguments->delta(), options); }));
  return MakeTicket(
      Call(self.store, std::move(ticket), Call::Kind::kAppend, {Owned(std::move(arguments))}),
      told);
}

void BindAppend(nb::class_<PyBranch>& branch) {
  branch.def(
      "append", &Append, "tokens"_a = nb::none(), "kv"_a = nb::none(), nb::kw_only(),
      "sampler"_a = nb::none(), "metadata"_a = nb::none(), "spans"_a = nb::none(), "exact"_a = true,
      "durability"_a = "process", "expected_length"_a = nb::none(), "ends_turn"_a = false,
      "timeout"_a = nb::none(), "gpu_ready"_a = 0,
      nb::sig("def append(self, tokens: typing.Any = None, kv: KvView | KvBuffer | None = None, *, "
              "sampler: SamplerState | None = None, metadata: Metadata | None = None, "
              "spans: collections.abc.Sequence[ContentSpan] | None = None, exact: bool = True, "
              "durability: str = 'process', expected_length: int | None = None, "
              "ends_turn: bool = False, timeout: float | None = None, gpu_ready: int = 0) -> int"),
      R"(Adds tokens, KV and states in one atomic step; the branch's length after it.

tokens: a list of ids, or one row of them in any array (uint32 is not copied). kv: a KvView or
KvBuffer of positions from each group's kv_length on; it may lag behind the tokens. sampler,
metadata: as they are after these tokens. spans: ContentSpans within the new tokens. exact=False:
the KV is an approximation. durability: "memory", "process" (survives the process) or "power".
expected_length: Conflict unless the branch is this long. timeout: seconds, or None. gpu_ready: of
CUDA memory, an event (a cudaEvent_t) behind which it may be read.

Blocks until it is as durable as asked for. Raises InvalidArgument, Conflict, ModelMismatch,
NotFound, NoSpace, DeadlineExceeded (nothing was applied), UnknownOutcome and others.)");
  branch.def(
      "append_async", &AppendAsync, "tokens"_a = nb::none(), "kv"_a = nb::none(), nb::kw_only(),
      "sampler"_a = nb::none(), "metadata"_a = nb::none(), "spans"_a = nb::none(), "exact"_a = true,
      "durability"_a = "process", "expected_length"_a = nb::none(), "ends_turn"_a = false,
      "timeout"_a = nb::none(), "gpu_ready"_a = 0, "overload"_a = "fail", "queue"_a = nb::none(),
      "user_data"_a = 0,
      nb::sig("def append_async(self, tokens: typing.Any = None, kv: KvView | KvBuffer | None = "
              "None, *, "
              "sampler: SamplerState | None = None, metadata: Metadata | None = None, "
              "spans: collections.abc.Sequence[ContentSpan] | None = None, exact: bool = True, "
              "durability: str = 'process', expected_length: int | None = None, "
              "ends_turn: bool = False, timeout: float | None = None, gpu_ready: int = 0, "
              "overload: str = 'fail', queue: CompletionQueue | None = None, user_data: int = 0) "
              "-> Ticket"),
      R"(The same without waiting for the disk: a Ticket, to be awaited.

Applied when this returns, or, of tensors larger than submit_copy_max_bytes, when Ticket.released.
Tensors must not be written before that; they are kept alive. overload: when buffers are full
"fail" raises Busy, "shed_kv" keeps the tokens alone. queue, user_data: tell a CompletionQueue
instead of the event loop.)");
  branch.def(
      "fill",
      [](const PyBranch& self, nb::handle kv, bool exact, std::string_view durability,
         std::optional<uint64_t> expected_length, std::optional<double> timeout,
         uintptr_t gpu_ready) {
        AppendOptions options = OptionsOf(durability, expected_length, false, timeout, gpu_ready);
        options.exact = exact;
        const auto spec = self.SpecFor(kv);
        const KvView* const view = ViewOf(kv, spec.get(), "kv", false);
        if (view == nullptr) BadArgument("kv: is None");
        Check(Unlocked([&] { return Branch(self.branch).Fill(*view, options); }));
      },
      "kv"_a, nb::kw_only(), "exact"_a = true, "durability"_a = "process",
      "expected_length"_a = nb::none(), "timeout"_a = nb::none(), "gpu_ready"_a = 0,
      nb::sig("def fill(self, kv: KvView | KvBuffer, *, exact: bool = True, durability: str = "
              "'process', expected_length: int | None = None, timeout: float | None = None, "
              "gpu_ready: int = 0) -> None"),
      R"(Attaches recomputed KV to positions that have none: that lag, were evicted or left out.

KV of positions that have some is ignored, so that of a whole prefix may be given. Branches that
share the positions get it as well. Blocks, as append. Raises Conflict (expected_length: the branch
is not so long) and what append raises. Positions below a group's kv_length are filled in steps:
those before a failed one are there.)");
}

RestoreResult Restore(const PyBranch& self, nb::handle into, nb::handle tokens, uint64_t begin,
                      std::optional<uint64_t> end, bool require_kv, std::optional<double> timeout,
                      nb::handle progress, uintptr_t gpu_ready, std::vector<uintptr_t> layer_events,
                      bool fall_back_to_host) {
  self.open().Sweep();
  const auto spec = self.SpecFor(into);
  RestoreArguments arguments(spec.get(), into, tokens, begin, end, require_kv, timeout, progress,
                             gpu_ready, std::move(layer_events), fall_back_to_host);
  return Take(
      Unlocked([&] { return self.branch.Restore(arguments.request(), arguments.progress()); }));
}

nb::object RestoreAsync(const PyBranch& self, nb::handle into, nb::handle tokens, uint64_t begin,
                        std::optional<uint64_t> end, bool require_kv, std::optional<double> timeout,
                        nb::handle progress, uintptr_t gpu_ready,
                        std::vector<uintptr_t> layer_events, bool fall_back_to_host,
                        nb::handle queue, uint64_t user_data) {
  const auto spec = self.SpecFor(into);
  auto arguments = std::make_unique<RestoreArguments>(spec.get(), into, tokens, begin, end,
                                                      require_kv, timeout, progress, gpu_ready,
                                                      std::move(layer_events), fall_back_to_host);
  const Told told(self.store, queue, user_data);
  arguments->request().queue = told.queue();
  arguments->request().user_data = told.number();
  Ticket ticket = Take(Unlocked(
      [&] { return self.branch.RestoreAsync(arguments->request(), arguments->progress()); }));
  return MakeTicket(
      Call(self.store, std::move(ticket), Call::Kind::kRestore, {Owned(std::move(arguments))}),
      told);
}

void BindRestore(nb::class_<PyBranch>& branch) {
  branch.def(
      "restore", &Restore, "into"_a = nb::none(), "tokens"_a = nb::none(), nb::kw_only(),
      "begin"_a = 0, "end"_a = nb::none(), "require_kv"_a = false, "timeout"_a = nb::none(),
      "progress"_a = nb::none(), "gpu_ready"_a = 0, "layer_events"_a = std::vector<uintptr_t>(),
      "fall_back_to_host"_a = false,
      nb::sig(
          "def restore(self, into: KvView | KvBuffer | None = None, tokens: typing.Any = None, *, "
          "begin: int = 0, end: int | None = None, require_kv: bool = False, "
          "timeout: float | None = None, progress: LayerProgress | None = None, "
          "gpu_ready: int = 0, layer_events: collections.abc.Sequence[int] = (), "
          "fall_back_to_host: bool = False) -> RestoreResult"),
      R"(Puts positions [begin, end) back, bit for bit, into the caller's memory.

into: a KvView of writable tensors, or a KvBuffer: what groups, layers and positions there is room
for. tokens: room for end - begin ids, a row of uint32. require_kv: Evicted unless KV reaches `end`.
progress: words that tell how far each layer is. gpu_ready, layer_events: of CUDA memory, the event
(a cudaEvent_t) behind which it may be written, and one a layer that is recorded behind its last
write.

Blocks. Raises Corruption (file, offset, and the longest restorable prefix), Evicted (what is
missing, before anything was read), InvalidArgument, DeadlineExceeded and others; `into` is
undefined then.)");
  branch.def(
      "restore_async", &RestoreAsync, "into"_a = nb::none(), "tokens"_a = nb::none(), nb::kw_only(),
      "begin"_a = 0, "end"_a = nb::none(), "require_kv"_a = false, "timeout"_a = nb::none(),
      "progress"_a = nb::none(), "gpu_ready"_a = 0, "layer_events"_a = std::vector<uintptr_t>(),
      "fall_back_to_host"_a = false, "queue"_a = nb::none(), "user_data"_a = 0,
      nb::sig("def restore_async(self, into: KvView | KvBuffer | None = None, tokens: typing.Any = "
              "None, *, "
              "begin: int = 0, end: int | None = None, require_kv: bool = False, "
              "timeout: float | None = None, progress: LayerProgress | None = None, "
              "gpu_ready: int = 0, layer_events: collections.abc.Sequence[int] = (), "
              "fall_back_to_host: bool = False, queue: CompletionQueue | None = None, "
              "user_data: int = 0) -> Ticket"),
      "The same by a thread of the store: a Ticket, to be awaited. The memory is kept alive and\n"
      "must not be touched until it is over.");
}

}  // namespace

RestoreArguments::RestoreArguments(const ModelSpec* model, nb::handle into, nb::handle tokens,
                                   uint64_t begin, std::optional<uint64_t> end, bool require_kv,
                                   std::optional<double> timeout, nb::handle progress,
                                   uintptr_t gpu_ready, std::vector<uintptr_t> layer_events,
                                   bool fall_back_to_host)
    : room_(tokens, "tokens"),
      into_(nb::borrow(into)),
      progress_object_(nb::borrow(progress)),
      layer_events_(std::move(layer_events)),
      gpu_{.ready = gpu_ready,
           .layer_events = layer_events_,
           .fall_back_to_host = fall_back_to_host} {
  request_.begin = begin;
  request_.end = end.value_or(UINT64_MAX);
  request_.tokens = room_.span();
  request_.into = ViewOf(into, model, "into", true);
  request_.require_kv = require_kv;
  request_.timeout_ns = TimeoutNs(timeout);
  if (request_.into != nullptr && request_.into->memory == MemoryKind::kCuda) {
    request_.gpu = &gpu_;
  }
  if (progress.is_none()) return;
  if (!nb::isinstance<Progress>(progress)) BadArgument("progress: is no LayerProgress");
  progress_ = &nb::cast<Progress&>(progress).progress;
}

void BindTransfer(nb::class_<PyBranch>& branch, nb::module_& module) {
  BindProgress(module);
  BindAppend(branch);
  BindRestore(branch);
}

}  // namespace cairn::python
