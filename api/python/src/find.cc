// SPDX-License-Identifier: Apache-2.0
//
// Store.find_prefix, and the methods of its result.
#include "api/python/src/branch.h"
#include "api/python/src/model.h"
#include "api/python/src/names.h"

namespace cairn::python {

namespace {

// A hit, and the store that gave it.
struct PyHit {
  PrefixHit hit;
  nb::object store;
  std::shared_ptr<const ModelSpec> spec;
  Store& open() const { return nb::cast<OpenStore&>(store).store(); }
};

PyHit Find(nb::handle self, const Model& model, nb::handle tokens, const std::string& ns,
           const std::vector<std::string>& also, std::vector<ContentSpan> spans, double lease,
           bool memory_only, bool confirm, bool approximate) {
  nb::cast<OpenStore&>(self).CheckModel(model);
  const Ids ids(tokens, "tokens");
  const std::vector<std::string_view> others(also.begin(), also.end());
  const PrefixQuery query{.model = model.id,
                          .tokens = ids.span(),
                          .spans = spans,
                          .ns = ns,
                          .also = others,
                          .lease_ns = DurationNs(lease, "lease"),
                          .memory_only = memory_only,
                          .confirm = confirm,
                          .approximate = approximate};
  Store& store = nb::cast<OpenStore&>(self).store();
  return {.hit = Take(Unlocked([&] { return store.FindPrefix(query); })),
          .store = nb::borrow(self),
          .spec = model.spec};
}

PyBranch Fork(const PyHit& self, std::optional<uint64_t> position, std::string name, std::string ns,
              const Keep& keep, std::string_view durability) {
  const BranchOptions options{.name = std::move(name),
                              .ns = std::move(ns),
                              .keep = keep,
                              .durability = Parse<Durability>(durability, "durability")};
  const uint64_t at = position.value_or(self.hit.restorable);
  Store& store = self.open();
  return {.branch = Take(Unlocked([&] { return store.Fork(self.hit, at, options); })),
          .store = self.store,
          .spec = self.spec};
}

RestoreResult Restore(const PyHit& self, nb::handle into, nb::handle tokens, uint64_t begin,
                      std::optional<uint64_t> end, bool require_kv, std::optional<double> timeout,
                      nb::handle progress, uintptr_t gpu_ready, std::vector<uintptr_t> layer_events,
                      bool fall_back_to_host) {
  nb::cast<OpenStore&>(self.store).Sweep();
  RestoreArguments arguments(self.spec.get(), into, tokens, begin, end, require_kv, timeout,
                             progress, gpu_ready, std::move(layer_events), fall_back_to_host);
  Store& store = self.open();
  return Take(
      Unlocked([&] { return store.Restore(self.hit, arguments.request(), arguments.progress()); }));
}

void BindHit(nb::module_& module) {
  nb::class_<PyHit> hit(module, "PrefixHit", R"(What the store has of a prompt's beginning.

True if anything was found. matched: ids and content spans are the same up to here; restorable: KV
can be restored up to here; exact: and is no approximation up to here. confirmed: ids were compared
one by one. complete: everything that was appended before was looked at. longest: the longest
match of ids that the search met, (node, matched): perhaps another node, which may have less KV.)");
  hit.def("__bool__", [](const PyHit& self) { return self.hit.found(); })
      .def_prop_ro("node", [](const PyHit& self) { return static_cast<uint64_t>(self.hit.node); })
      .def_prop_ro("matched", [](const PyHit& self) { return self.hit.matched; })
      .def_prop_ro("restorable", [](const PyHit& self) { return self.hit.restorable; })
      .def_prop_ro("exact", [](const PyHit& self) { return self.hit.exact; })
      .def_prop_ro(
          "longest",
          [](const PyHit& self) {
            return std::pair(static_cast<uint64_t>(self.hit.longest.node),
                             self.hit.longest.matched);
          },
          "(node, matched)")
      .def_prop_ro("confirmed", [](const PyHit& self) { return self.hit.confirmed; })
      .def_prop_ro("complete", [](const PyHit& self) { return self.hit.complete; })
      .def("__repr__", [](const PyHit& self) {
        return "PrefixHit(matched=" + std::to_string(self.hit.matched) +
               ", restorable=" + std::to_string(self.hit.restorable) + ")";
      });
  hit.def(
      "fork", &Fork, "position"_a = nb::none(), "name"_a = "", nb::kw_only(), "namespace"_a = "",
      "keep"_a = Keep(), "durability"_a = "process",
      nb::sig("def fork(self, position: int | None = None, name: str = '', *, "
              "namespace: str = '', keep: Keep = ..., durability: str = 'process') -> Branch"),
      "A branch with the first `position` tokens, by default `restorable`. Conflict or NotFound\n"
      "when the place holds other tokens by now: it never is a branch of others.");
  hit.def("restore", &Restore, "into"_a = nb::none(), "tokens"_a = nb::none(), nb::kw_only(),
          "begin"_a = 0, "end"_a = nb::none(), "require_kv"_a = false, "timeout"_a = nb::none(),
          "progress"_a = nb::none(), "gpu_ready"_a = 0, "layer_events"_a = std::vector<uintptr_t>(),
          "fall_back_to_host"_a = false,
          nb::sig("def restore(self, into: KvView | KvBuffer | None = None, "
                  "tokens: typing.Any = None, *, begin: int = 0, end: int | None = None, "
                  "require_kv: bool = False, timeout: float | None = None, "
                  "progress: LayerProgress | None = None, gpu_ready: int = 0, "
                  "layer_events: collections.abc.Sequence[int] = (), "
                  "fall_back_to_host: bool = False) -> RestoreResult"),
          "As Branch.restore, of positions up to `matched`, which `end` None is.");
  BindLease<PyHit>(&hit, [](const PyHit& self) { return self.hit.lease; });
}

}  // namespace

void BindFind(nb::class_<OpenStore>& store, nb::module_& module) {
  BindHit(module);
  store.def(
      "find_prefix", &Find, "model"_a, "tokens"_a, nb::kw_only(), "namespace"_a = "",
      "also"_a = std::vector<std::string>(), "spans"_a = std::vector<ContentSpan>(),
      "lease"_a = 0.0, "memory_only"_a = false, "confirm"_a = true, "approximate"_a = false,
      nb::sig("def find_prefix(self, model: Model, tokens: typing.Any, *, "
              "namespace: str = '', also: collections.abc.Sequence[str] = (), "
              "spans: collections.abc.Sequence[ContentSpan] = (), lease: float = 0.0, "
              "memory_only: bool = False, confirm: bool = True, approximate: bool = False) "
              "-> PrefixHit"),
      R"(The prefix of the tokens of which a branch of a namespace can restore most, as a PrefixHit.

Prefixes shorter than 64 tokens are not found. also: other namespaces that the caller may see.
lease: seconds for which the hit stays as it is (no rewind, eviction or expiry takes it); use the
hit as a context manager, or release() it. memory_only: Busy instead of a read from the disk.
confirm=False: by hash alone; fork and restore confirm it. No hit is no error.)");
}

}  // namespace cairn::python
