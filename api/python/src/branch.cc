// SPDX-License-Identifier: Apache-2.0
//
// Calls of branches, except append and restore, which are in transfer.cc.
#include "api/python/src/branch.h"

#include "api/python/src/names.h"
#include "api/python/src/shadow.h"

namespace cairn::python {

namespace {

nb::object StateTuple(const Branch::StateAt& state) {
  if (state.sampler.has_value()) return nb::make_tuple(state.position, *state.sampler);
  return nb::make_tuple(state.position, *state.metadata);
}

// May wait for room for accepted appends, or read the disk.
uint64_t Length(const PyBranch& self) {
  return Take(Unlocked([&] { return self.branch.length(); }));
}

void BindLooks(nb::class_<PyBranch>& branch) {
  branch.def_prop_ro("id",
                     [](const PyBranch& self) { return static_cast<uint64_t>(self.branch.id()); });
  branch.def_prop_ro(
      "store", [](const PyBranch& self) { return self.store; },
      nb::sig("def store(self) -> Store"));
  branch.def(
      "info",
      [](const PyBranch& self) { return Take(Unlocked([&] { return self.branch.Info(); })); },
      "Name, lengths, times. NotFound: it was dropped.");
  branch.def_prop_ro("length", &Length, "Tokens, of what was applied: you read your writes.");
  branch.def("__len__", &Length);
  // Else an empty branch were false, by its length.
  branch.def("__bool__", [](const PyBranch&) { return true; });
  // Handles of one branch are equal, whichever calls made them.
  branch.def(
      "__eq__",
      [](const PyBranch& a, const PyBranch& b) {
        return a.store.is(b.store) && a.branch.id() == b.branch.id();
      },
      nb::is_operator());
  branch.def("__hash__", [](const PyBranch& self) {
    return nb::hash(nb::make_tuple(nb::int_(reinterpret_cast<uintptr_t>(self.store.ptr())),
                                   nb::int_(static_cast<uint64_t>(self.branch.id()))));
  });
  branch.def_prop_ro(
      "durable_length",
      [](const PyBranch& self) {
        return Take(Unlocked([&] { return self.branch.durable_length(); }));
      },
      "Tokens that survive power loss.");
  branch.def_prop_ro(
      "kv_lengths",
      [](const PyBranch& self) {
        return Take(Unlocked([&] { return self.branch.Info(); })).kv_lengths;
      },
      "Positions with KV, one number a layer group.");
  branch.def(
      "path",
      [](const PyBranch& self) { return Take(Unlocked([&] { return self.branch.Path(); })); },
      "The stretches from the root to the head, root first.");
  branch.def(
      "tokens",
      [](const PyBranch& self, uint64_t begin, std::optional<uint64_t> end) {
        const uint64_t last = end.value_or(UINT64_MAX);
        return NumpyIds(Take(Unlocked([&] { return self.branch.ReadTokens(begin, last); })));
      },
      "begin"_a = 0, "end"_a = nb::none(),
      nb::sig("def tokens(self, begin: int = 0, end: int | None = None) "
              "-> numpy.typing.NDArray[numpy.uint32]"),
      "Ids of positions [begin, end), a numpy array of uint32. May read the disk.");
  branch.def(
      "restorable_length",
      [](const PyBranch& self, std::optional<uint64_t> at_most) {
        return Take(
            Unlocked([&] { return self.branch.RestorableLength(at_most.value_or(UINT64_MAX)); }));
      },
      "at_most"_a = nb::none(),
      "The largest position up to which every group has what its rule needs: an `end` for "
      "restore.");
  branch.def(
      "evicted_kv",
      [](const PyBranch& self, uint64_t begin, std::optional<uint64_t> end) {
        return Take(
            Unlocked([&] { return self.branch.EvictedKv(begin, end.value_or(UINT64_MAX)); }));
      },
      "begin"_a = 0, "end"_a = nb::none(),
      "The positions in [begin, end) without the KV that a restore needs, as KvHoles.");
  branch.def(
      "sampler_at",
      [](const PyBranch& self, std::optional<uint64_t> position) {
        const uint64_t at = position.value_or(UINT64_MAX);
        return StateTuple(Take(Unlocked([&] { return self.branch.SamplerAt(at); })));
      },
      "position"_a = nb::none(),
      nb::sig("def sampler_at(self, position: int | None = None) -> tuple[int, SamplerState]"),
      "(position, SamplerState): the newest one at `position` tokens or before. NotFound.");
  branch.def(
      "metadata_at",
      [](const PyBranch& self, std::optional<uint64_t> position) {
        const uint64_t at = position.value_or(UINT64_MAX);
        return StateTuple(Take(Unlocked([&] { return self.branch.MetadataAt(at); })));
      },
      "position"_a = nb::none(),
      nb::sig("def metadata_at(self, position: int | None = None) -> tuple[int, Metadata]"),
      "(position, Metadata): the newest one at `position` tokens or before. NotFound.");
  branch.def(
      "spans",
      [](const PyBranch& self, uint64_t begin, std::optional<uint64_t> end) {
        return Take(Unlocked([&] { return self.branch.Spans(begin, end.value_or(UINT64_MAX)); }));
      },
      "begin"_a = 0, "end"_a = nb::none(), "Content spans with a position in [begin, end).");
}

void BindChanges(nb::class_<PyBranch>& branch) {
  branch.def(
      "fork",
      [](const PyBranch& self, std::optional<uint64_t> position, std::string name, std::string ns,
         const Keep& keep, std::string_view durability) {
        const BranchOptions options{.name = std::move(name),
                                    .ns = std::move(ns),
                                    .keep = keep,
                                    .durability = Parse<Durability>(durability, "durability")};
        return PyBranch{.branch = Take(Unlocked([&]() -> Result<Branch> {
                          uint64_t at = position.value_or(0);
                          if (!position.has_value()) {
                            const Result<uint64_t> length = self.branch.length();
                            if (!length.ok()) return length.status();
                            at = *length;
                          }
                          return self.branch.ForkAt(at, options);
                        })),
                        .store = self.store,
                        .spec = self.spec};
      },
      "position"_a = nb::none(), "name"_a = "", nb::kw_only(), "namespace"_a = "",
      "keep"_a = Keep(), "durability"_a = "process",
      nb::sig("def fork(self, position: int | None = None, name: str = '', *, namespace: str = '', "
              "keep: Keep = ..., durability: str = 'process') -> Branch"),
      "A new branch with the first `position` tokens, by default all. Constant time, copies "
      "nothing.");
  branch.def(
      "rewind",
      [](const PyBranch& self, uint64_t length, std::string_view durability) {
        const auto level = Parse<Durability>(durability, "durability");
        Check(Unlocked([&] { return Branch(self.branch).Rewind(length, level); }));
      },
      "length"_a, nb::kw_only(), "durability"_a = "process",
      "Forgets everything from position `length` on.");
  branch.def(
      "rename",
      [](const PyBranch& self, const std::string& name, std::string_view durability) {
        const auto level = Parse<Durability>(durability, "durability");
        Check(Unlocked([&] { return Branch(self.branch).Rename(name, level); }));
      },
      "name"_a, nb::kw_only(), "durability"_a = "process",
      "Another name in the same namespace; empty: unnamed. AlreadyExists.");
  branch.def(
      "drop",
      [](const PyBranch& self, std::string_view durability) {
        const auto level = Parse<Durability>(durability, "durability");
        Check(Unlocked([&] { return Branch(self.branch).Drop(level); }));
      },
      nb::kw_only(), "durability"_a = "process",
      "The branch goes; what others share stays. Every handle of it raises NotFound then.");
  branch.def(
      "set_keep",
      [](const PyBranch& self, const Keep& keep, std::string_view durability) {
        const auto level = Parse<Durability>(durability, "durability");
        Check(Unlocked([&] { return Branch(self.branch).SetKeep(keep, level); }));
      },
      "keep"_a, nb::kw_only(), "durability"_a = "process", "How long it is kept.");
  branch.def(
      "prefetch",
      [](const PyBranch& self, uint64_t begin, std::optional<uint64_t> end,
         std::optional<uint32_t> gpu) {
        const PrefetchRequest request{.begin = begin, .end = end.value_or(UINT64_MAX), .gpu = gpu};
        Check(Unlocked([&] { return self.branch.Prefetch(request); }));
      },
      "begin"_a = 0, "end"_a = nb::none(), nb::kw_only(), "gpu"_a = nb::none(),
      "A hint that positions [begin, end) will be restored soon, into host memory or the GPU of\n"
      "that ordinal. Never blocks on the disk. Busy: many hints are waiting, nothing is done.");
}

}  // namespace

void BindBranch(nb::module_& module) {
  nb::class_<PyBranch> branch(module, "Branch",
                              R"(A named, movable head in the tree of conversations.

Store.create_branch, find_branch and fork make one. A small handle that keeps its Store object; all
methods are thread-safe and run without the interpreter's lock. Ranges [begin, end) are positions,
`end` None is the branch's length. Raises InvalidState once the store is closed, NotFound once the
branch was dropped.)");
  BindLooks(branch);
  BindChanges(branch);
  BindTransfer(branch, module);
  BindDraft(branch, module);
  BindBranchExport(branch, module);
  BindShadow(branch, module);
  branch.def("__repr__", [](const PyBranch& self) {
    const Result<BranchInfo> info = Unlocked([&] { return self.branch.Info(); });
    if (!info.ok()) return "Branch(" + std::string(StatusCodeName(info.status().code())) + ")";
    return "Branch('" + info->name + "', length=" + std::to_string(info->length) + ")";
  });
}

}  // namespace cairn::python
