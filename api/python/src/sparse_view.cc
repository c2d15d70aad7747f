// SPDX-License-Identifier: Apache-2.0
//
// The result of a fetch: slots as tensors of the device, and copies of them.
#include "api/python/src/call.h"
#include "api/python/src/dtypes.h"
#include "api/python/src/sparse.h"

namespace cairn::python {

namespace {

struct Shape {
  std::vector<size_t> sizes;
  std::vector<int64_t> strides;  // In elements.
};

Shape ShapeOfSlots(const PyView& self) {
  return {{self.of().heads(), self.count}, {self.view.slot_of_stride, 1}};
}
// [heads, slots, tokens of a piece, elements of a row]
Shape ShapeOfPlane(const PyView& self, size_t plane) {
  const SparseView::PlaneSlots& slots = self.view.planes[plane];
  const PySession& of = self.of();
  const uint64_t item = DtypeBytes(of.planes()[plane]->dtype);
  const uint64_t row = of.planes()[plane]->row_bytes / item;
  return {{of.heads(), of.options().slots, of.options().piece_tokens, row},
          {static_cast<int64_t>(slots.head_stride / item),
           static_cast<int64_t>(slots.piece_bytes / item), static_cast<int64_t>(row), 1}};
}

nb::object OnDevice(const PyView& self, const void* at, const Shape& shape,
                    nb::dlpack::dtype dtype) {
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<void*>(at), shape.sizes.size(),
                                             shape.sizes.data(), self.session, shape.strides.data(),
                                             dtype, nb::device::cuda::value,
                                             static_cast<int>(self.of().gpu().ordinal())));
}

nb::object SlotsOf(const PyView& self) {
  return OnDevice(self, self.view.slot_of, ShapeOfSlots(self), nb::dtype<int32_t>());
}
nb::object PlanesOf(const PyView& self) {
  nb::list planes;
  for (size_t plane = 0; plane < self.of().planes().size(); ++plane) {
    planes.append(OnDevice(self, self.view.planes[plane].base, ShapeOfPlane(self, plane),
                           DlpackDtype(self.of().planes()[plane]->dtype)));
  }
  return nb::tuple(planes);
}

// Rows of `row_bytes`, `stride` bytes apart on the device, as a dense array of numpy.
nb::object CopyOut(const PyView& self, const void* from, uint64_t stride, uint64_t row_bytes,
                   const std::vector<size_t>& shape, nb::dlpack::dtype dtype) {
  const uint64_t rows = self.of().heads();
  auto owned = std::make_unique<std::vector<std::byte>>(rows * row_bytes);
  std::byte* const to = owned->data();
  const auto* const base = static_cast<const std::byte*>(from);
  const Gpu& gpu = self.of().gpu();
  Check(Unlocked([&] {
    for (uint64_t row = 0; row < rows && row_bytes != 0; ++row) {
      Status copied = gpu.CopyOut(to + row * row_bytes, base + row * stride, row_bytes);
      if (!copied.ok()) return copied;
    }
    return Status::Ok();
  }));
  return nb::cast(nb::ndarray<nb::numpy>(to, shape.size(), shape.data(), Owned(std::move(owned)),
                                         nullptr, dtype));
}

nb::object ToHost(const PyView& self) {
  const PySession& of = self.of();
  nb::object slots =
      CopyOut(self, self.view.slot_of, self.view.slot_of_stride * sizeof(int32_t),
              self.count * sizeof(int32_t), ShapeOfSlots(self).sizes, nb::dtype<int32_t>());
  nb::list planes;
  for (size_t plane = 0; plane < of.planes().size(); ++plane) {
    const SparseView::PlaneSlots& from = self.view.planes[plane];
    planes.append(CopyOut(self, from.base, from.head_stride, from.head_stride,
                          ShapeOfPlane(self, plane).sizes, NumpyDtype(of.planes()[plane]->dtype)));
  }
  return nb::make_tuple(slots, nb::tuple(planes));
}

}  // namespace

void BindSparseView(nb::module_& module) {
  nb::class_<PyView>(module, "SparseView",
                     R"(Where a fetch put what was wanted, in memory of the device.

slots and planes are arrays for whatever speaks DLPack (torch.from_dlpack), and keep the session.
Their content is valid, once the stream has come so far, until the next fetch of the layer.)")
      .def_prop_ro("slots", &SlotsOf, nb::sig("def slots(self) -> typing.Any"),
                   "int32 [heads, count]: the slot of each wanted piece; -1: it was left out.")
      .def_prop_ro(
          "planes", &PlanesOf, nb::sig("def planes(self) -> tuple[typing.Any, ...]"),
          "In order, of each plane [heads, slots, piece_tokens, elements of a row], of its dtype.")
      .def(
          "to_host", &ToHost,
          nb::sig("def to_host(self) -> tuple[numpy.typing.NDArray[numpy.int32], "
                  "tuple[numpy.typing.NDArray, ...]]"),
          "(slots, planes) copied into arrays of numpy, for looks and tests; bf16 as its bits, in\n"
          "uint16. Waits for the copies, not for the stream: call it behind a strict fetch. "
          "Blocks.");
}

}  // namespace cairn::python
