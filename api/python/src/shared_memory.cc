// SPDX-License-Identifier: Apache-2.0
//
// Memory that several processes see, and copies of KV rows between views.
#include "cairn/shared_memory.h"

#include <nanobind/ndarray.h>

#include "api/python/src/kv.h"
#include "api/python/src/model.h"
#include "cairn/copy_kv.h"

namespace cairn::python {

namespace {

struct Copier {
  std::shared_ptr<const ModelSpec> from, to;
  KvCopier copier;
};

CopyKvOptions OptionsOf(uintptr_t gpu_ready, std::optional<double> timeout) {
  return {.gpu_ready = gpu_ready, .timeout_ns = TimeoutNs(timeout)};
}

uint64_t Copy(const Copier& self, nb::handle from, nb::handle to, uintptr_t gpu_ready,
              std::optional<double> timeout) {
  const KvView* const source = ViewOf(from, self.from.get(), "from_", false);
  const KvView* const target = ViewOf(to, self.to.get(), "to", true);
  if (source == nullptr) BadArgument("from_: is None");
  if (target == nullptr) BadArgument("to: is None");
  const CopyKvOptions options = OptionsOf(gpu_ready, timeout);
  return Take(Unlocked([&] { return self.copier.Copy(*source, *target, options); }));
}

Copier MakeCopier(nb::handle from, nb::handle to, const std::vector<Gpu>& gpus) {
  std::shared_ptr<const ModelSpec> source = SpecOf(from), target = SpecOf(to);
  KvCopier copier = Take(KvCopier::Make(*source, *target, gpus));
  return {std::move(source), std::move(target), std::move(copier)};
}

void BindArea(nb::module_& module) {
  nb::class_<SharedMemory>(module, "SharedMemory", R"(Memory that several processes of a host see.

The process with the store creates it and sends its address to others, which map it. It is gone
with the last process that has it, however that ends. docs/processes.md.)")
      .def_static(
          "create",
          [](const std::string& directory, uint64_t bytes) {
            return Take(Unlocked([&] { return SharedMemory::Create(directory, bytes); }));
          },
          "directory"_a, "bytes"_a,
          R"(An area of zeros; processes find it in `directory`, usually the store's.

Takes all of its memory, and blocks for that. Raises InvalidArgument, NotFound (no such
directory), OutOfMemory, Locked and IoError.)")
      .def_static(
          "map",
          [](const std::string& address) {
            return Take(Unlocked([&] { return SharedMemory::Map(address); }));
          },
          "address"_a,
          R"(The area with this address, of a process of the same user.

Raises InvalidArgument (no address), NotFound (its creator has ended, or is on another host),
Conflict (an old address), DeadlineExceeded (no answer for ten seconds), OutOfMemory, IoError.)")
      .def_prop_ro(
          "address", [](const SharedMemory& self) { return self.address(); },
          "For SharedMemory.map in other processes; to be kept as a password is.")
      .def_prop_ro(
          "bytes",
          [](nb::handle self) {
            const std::span<std::byte> bytes = nb::cast<const SharedMemory&>(self).bytes();
            const size_t size = bytes.size();
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(bytes.data(), {size}, self);
          },
          nb::sig("def bytes(self) -> numpy.typing.NDArray[numpy.uint8]"),
          "All of it, as a numpy array that shares the memory and keeps it mapped. Empty in a "
          "child\n"
          "of fork(), which may not touch arrays that were made before.")
      .def_prop_ro("is_creator", &SharedMemory::is_creator)
      .def_prop_ro("mapped", &SharedMemory::mapped,
                   "By its creator: how many times it was mapped; else 0.")
      .def_prop_ro("refused", &SharedMemory::refused,
                   "By its creator: how many times somebody asked in vain; else 0.");
}

}  // namespace

void BindSharedMemory(nb::module_& module) {
  BindArea(module);
  nb::class_<Copier>(module, "KvCopier",
                     R"(Copies KV rows from views of one model to views of another.

Both are the same model, or parts of it (ModelSpec.logical): what both hold is copied. gpus: those
whose memory views may name. Raises ModelMismatch naming what differs, InvalidArgument.)")
      .def(
          "__init__",
          [](Copier* self, nb::handle from, nb::handle to, const std::vector<Gpu>& gpus) {
            new (self) Copier(MakeCopier(from, to, gpus));
          },
          "from_"_a, "to"_a, nb::kw_only(), "gpus"_a = std::vector<Gpu>(),
          nb::sig("def __init__(self, from_: ModelSpec | Model, to: ModelSpec | Model, *, "
                  "gpus: collections.abc.Sequence[Gpu] = ()) -> None"))
      .def("copy", &Copy, "from_"_a, "to"_a, nb::kw_only(), "gpu_ready"_a = 0,
           "timeout"_a = nb::none(),
           nb::sig("def copy(self, from_: KvView | KvBuffer, to: KvView | KvBuffer, *, "
                   "gpu_ready: int = 0, timeout: float | None = None) -> int"),
           R"(Copies the rows of all positions of `from_`; how many bytes that were.

Every position of each group of `from_` lies in `to`. At most one view is of GPU memory.
gpu_ready: a cudaEvent_t behind which that may be used; timeout: seconds to wait for it. Raises
InvalidArgument, DeadlineExceeded, Corruption (a table on the device changed), IoError.)");
  module.def(
      "copy_kv",
      [](nb::handle model, nb::handle from, nb::handle to, const std::vector<Gpu>& gpus,
         uintptr_t gpu_ready, std::optional<double> timeout) {
        return Copy(MakeCopier(model, model, gpus), from, to, gpu_ready, timeout);
      },
      "model"_a, "from_"_a, "to"_a, nb::kw_only(), "gpus"_a = std::vector<Gpu>(), "gpu_ready"_a = 0,
      "timeout"_a = nb::none(),
      nb::sig("def copy_kv(model: ModelSpec | Model, from_: KvView | KvBuffer, "
              "to: KvView | KvBuffer, *, gpus: collections.abc.Sequence[Gpu] = (), "
              "gpu_ready: int = 0, timeout: float | None = None) -> int"),
      "One copy between views of a model: KvCopier(model, model, gpus=gpus).copy(from_, to).");
}

}  // namespace cairn::python
