// SPDX-License-Identifier: Apache-2.0
//
// GPUs, real and simulated, and memory of theirs for programs that have no other means.
#include <nanobind/stl/map.h>

#include <algorithm>

#include "api/python/src/dtypes.h"
#include "api/python/src/names.h"
#include "api/python/src/size.h"
#include "api/python/src/tensor.h"
#include "cairn/gpu.h"

namespace cairn::python {

namespace {

// Memory of a device. Arrays made from it keep it alive.
class GpuMemory {
 public:
  GpuMemory(Gpu gpu, uint64_t bytes)
      : gpu_(std::move(gpu)), bytes_(bytes), data_(Take(gpu_.Allocate(bytes))) {}
  ~GpuMemory() { gpu_.Free(data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  const Gpu& gpu() const { return gpu_; }
  uint64_t bytes() const { return bytes_; }
  std::byte* At(uint64_t offset, uint64_t count) const {
    if (offset > bytes_ || count > bytes_ - offset) {
      BadArgument("offset: bytes [" + std::to_string(offset) + ", " + std::to_string(offset) +
                  " + " + std::to_string(count) + ") of " + std::to_string(bytes_));
    }
    return data_ + offset;
  }

 private:
  Gpu gpu_;
  uint64_t bytes_;
  std::byte* data_;
};

GpuOptions GpuOptionsOf(uint32_t ordinal, uint32_t processors_max, const SizeArgument& pinned_bytes,
                        uint64_t pinned_tokens, std::map<std::string, uint64_t> pinned_tokens_of) {
  return {.ordinal = ordinal,
          .processors_max = processors_max,
          .pinned_bytes = SizeOf(pinned_bytes, "pinned_bytes"),
          .pinned_tokens = pinned_tokens,
          .pinned_tokens_of = std::move(pinned_tokens_of)};
}

nb::object TensorOf(nb::handle self, const std::vector<size_t>& shape, const nb::object& dtype,
                    uint64_t offset) {
  const auto& memory = nb::cast<const GpuMemory&>(self);
  const std::string word = nb::str(dtype).c_str();
  // Tables of blocks and slots.
  const bool wide = word == "i64";
  const bool narrow = word == "i32";
  const Dtype element = wide || narrow ? Dtype::kOpaque : Parse<Dtype>(word, "dtype");
  uint64_t bytes = wide ? 8 : narrow ? 4 : DtypeBytes(element);
  for (const size_t size : shape) {
    if (size != 0 && bytes > memory.bytes() / size) BadArgument("shape: is too large");
    bytes *= size;
  }
  std::byte* const data = memory.At(offset, bytes);
  const nb::dlpack::dtype kind = wide     ? nb::dtype<int64_t>()
                                 : narrow ? nb::dtype<int32_t>()
                                          : DlpackDtype(element);
  return nb::cast(nb::ndarray<nb::array_api>(data, shape.size(), shape.data(), self, nullptr, kind,
                                             nb::device::cuda::value,
                                             static_cast<int>(memory.gpu().ordinal())));
}

void BindMemory(nb::module_& module) {
  nb::class_<GpuMemory>(module, "GpuMemory",
                        R"(Memory of a GPU, for programs that have no other means.

Gpu.allocate makes it; it is freed with the last array made of it. Calls block.)")
      .def_prop_ro("bytes", &GpuMemory::bytes)
      .def("tensor", &TensorOf, "shape"_a, "dtype"_a, "offset"_a = 0,
           nb::sig("def tensor(self, shape: collections.abc.Sequence[int], dtype: str, "
                   "offset: int = 0) -> typing.Any"),
           "An array of it, dense, for whatever speaks DLPack. dtype: of a plane, or \"i32\", "
           "\"i64\".")
      .def(
          "copy_in",
          [](const GpuMemory& self, nb::handle host, uint64_t offset) {
            const Tensor from = ImportBytes(host, "host", false);
            std::byte* const to = self.At(offset, from.bytes());
            Check(Unlocked([&] { return self.gpu().CopyIn(to, from.data, from.bytes()); }));
          },
          "host"_a, "offset"_a = 0,
          nb::sig("def copy_in(self, host: typing.Any, offset: int = 0) -> None"),
          "From contiguous host memory to bytes from `offset` on.")
      .def(
          "copy_out",
          [](const GpuMemory& self, nb::handle host, uint64_t offset) {
            const Tensor to = ImportBytes(host, "host", true);
            const std::byte* const from = self.At(offset, to.bytes());
            Check(Unlocked([&] { return self.gpu().CopyOut(to.data, from, to.bytes()); }));
          },
          "host"_a, "offset"_a = 0,
          nb::sig("def copy_out(self, host: typing.Any, offset: int = 0) -> None"),
          "From bytes from `offset` on to contiguous, writable host memory.");
}

}  // namespace

void BindGpu(nb::module_& module) {
  nb::class_<Gpu>(module, "Gpu", R"(A GPU that a store may use: Store(path, gpus=[gpu]).

Tensors in its memory then go wherever host tensors do: a KvView of CUDA tensors is appended
from and restored into. ordinal: as CUDA counts in this process. processors_max: how many of the
card's processors unpacking may fill; 0: a sixth. pinned_bytes: host memory that is kept pinned for
pages that go there often; 0: none. pinned_tokens: newest tokens of a branch that stay there.)")
      .def_static(
          "open",
          [](uint32_t ordinal, uint32_t processors_max, const SizeArgument& pinned_bytes,
             uint64_t pinned_tokens, std::map<std::string, uint64_t> pinned_tokens_of) {
            const GpuOptions options = GpuOptionsOf(ordinal, processors_max, pinned_bytes,
                                                    pinned_tokens, std::move(pinned_tokens_of));
            return Take(Unlocked([&] { return Gpu::Open(options); }));
          },
          "ordinal"_a = 0, nb::kw_only(), "processors_max"_a = 0, "pinned_bytes"_a = uint64_t{0},
          "pinned_tokens"_a = 4096, "pinned_tokens_of"_a = std::map<std::string, uint64_t>(),
          "One of this machine. NotFound: no driver, no such device, or a build without CUDA.")
      .def_static(
          "simulated",
          [](uint64_t seed, uint32_t ordinal, const SizeArgument& pinned_bytes,
             uint64_t pinned_tokens) {
            const GpuOptions options = GpuOptionsOf(ordinal, 0, pinned_bytes, pinned_tokens, {});
            return Take(Unlocked([&] { return Gpu::Simulated(seed, options); }));
          },
          "seed"_a, "ordinal"_a = 0, nb::kw_only(), "pinned_bytes"_a = uint64_t{0},
          "pinned_tokens"_a = 4096,
          "None at all, but a device on the CPU that runs the same kernels, its streams as late "
          "as\n"
          "they may; what it does follows from the seed. 64 MiB. For tests.")
      .def_prop_ro("ordinal", &Gpu::ordinal)
      .def_prop_ro("name", [](const Gpu& self) { return self.name(); })
      .def(
          "allocate",
          [](const Gpu& self, uint64_t bytes) { return std::make_unique<GpuMemory>(self, bytes); },
          "bytes"_a, "Memory of undefined content, aligned to 256 bytes. OutOfMemory.");
  BindMemory(module);
}

}  // namespace cairn::python
