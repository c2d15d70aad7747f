// SPDX-License-Identifier: Apache-2.0
//
// The content that a step attends to: tensors of the device, and copies of them.
#include "api/python/src/call.h"
#include "api/python/src/dtypes.h"
#include "api/python/src/shadow.h"

namespace cairn::python {

namespace {

// For each head `head_bytes` from `base` on, densely; heads are `head_stride` bytes apart.
struct Array {
  const void* base = nullptr;
  uint64_t head_stride = 0;
  std::vector<size_t> sizes;  // The head axis comes first.
  nb::dlpack::dtype device_dtype, host_dtype;

  uint64_t item_bytes() const { return device_dtype.bits / 8; }
  uint64_t head_bytes() const {
    uint64_t bytes = item_bytes();
    for (size_t i = 1; i < sizes.size(); ++i) bytes *= sizes[i];
    return bytes;
  }
};

nb::object OnDevice(const PyShadowView& self, const Array& array) {
  std::vector<int64_t> strides(array.sizes.size(), 1);
  for (size_t i = strides.size() - 1; i-- > 1;) {
    strides[i] = strides[i + 1] * static_cast<int64_t>(array.sizes[i + 1]);
  }
  strides[0] = static_cast<int64_t>(array.head_stride / array.item_bytes());
  return nb::cast(nb::ndarray<nb::array_api>(const_cast<void*>(array.base), array.sizes.size(),
                                             array.sizes.data(), self.session, strides.data(),
                                             array.device_dtype, nb::device::cuda::value,
                                             static_cast<int>(self.of().gpu().ordinal())));
}

nb::object OnHost(const PyShadowView& self, const Array& array) {
  const uint64_t bytes = array.head_bytes();
  auto owned = std::make_unique<std::vector<std::byte>>(array.sizes[0] * bytes);
  std::byte* const to = owned->data();
  const auto* const from = static_cast<const std::byte*>(array.base);
  const Gpu& gpu = self.of().gpu();
  Check(Unlocked([&] {
    for (size_t head = 0; head < array.sizes[0] && bytes != 0; ++head) {
      Status copied = gpu.CopyOut(to + head * bytes, from + head * array.head_stride, bytes);
      if (!copied.ok()) return copied;
    }
    return Status::Ok();
  }));
  return nb::cast(nb::ndarray<nb::numpy>(to, array.sizes.size(), array.sizes.data(),
                                         Owned(std::move(owned)), nullptr, array.host_dtype));
}

// ---------------------------------------------------------------- properties

Array Resident(const PyShadowView& self, uint32_t plane) {
  const PyShadowSession& of = self.of();
  const ShadowView& view = self.view;
  return {.base = plane == 0 ? view.resident_keys : view.resident_values,
          .head_stride = plane == 0 ? view.resident_key_stride : view.resident_value_stride,
          .sizes = {of.heads(), view.resident_tokens, of.row_elements(plane)},
          .device_dtype = DlpackDtype(of.plane(plane).dtype),
          .host_dtype = NumpyDtype(of.plane(plane).dtype)};
}
Array ResidentKeys(const PyShadowView& self) { return Resident(self, 0); }
Array ResidentValues(const PyShadowView& self) { return Resident(self, 1); }

Array Numbers(const PyShadowView& self, const void* base) {
  return {.base = base,
          .head_stride = self.view.stride * sizeof(int32_t),
          .sizes = {self.of().heads(), self.view.count},
          .device_dtype = nb::dtype<int32_t>(),
          .host_dtype = nb::dtype<int32_t>()};
}
Array Chunks(const PyShadowView& self) { return Numbers(self, self.view.chunks); }
Array KeySlots(const PyShadowView& self) { return Numbers(self, self.view.key_slot_of); }
Array ValueSlots(const PyShadowView& self) { return Numbers(self, self.view.value_slot_of); }

Array Slots(const PyShadowView& self, uint32_t plane) {
  const PyShadowSession& of = self.of();
  const SparseView::PlaneSlots& slots = plane == 0 ? self.view.keys : self.view.values;
  const size_t count = slots.piece_bytes == 0 ? 0 : slots.head_stride / slots.piece_bytes;
  return {.base = slots.base,
          .head_stride = slots.head_stride,
          .sizes = {of.heads(), count, of.options().spec.chunk_tokens, of.row_elements(plane)},
          .device_dtype = DlpackDtype(of.plane(plane).dtype),
          .host_dtype = NumpyDtype(of.plane(plane).dtype)};
}
Array Keys(const PyShadowView& self) { return Slots(self, 0); }
Array Values(const PyShadowView& self) { return Slots(self, 1); }

struct Part {
  const char* name;
  Array (*array)(const PyShadowView& self);
};
constexpr Part kParts[] = {
    {"resident_keys", ResidentKeys},
    {"resident_values", ResidentValues},
    {"chunks", Chunks},
    {"key_slots", KeySlots},
    {"value_slots", ValueSlots},
    {"keys", Keys},
    {"values", Values},
};

nb::dict ToHost(const PyShadowView& self) {
  nb::dict dict;
  for (const Part& part : kParts) dict[part.name] = OnHost(self, part.array(self));
  return dict;
}

template <Array (*kArray)(const PyShadowView&)>
nb::object Get(const PyShadowView& self) {
  return OnDevice(self, kArray(self));
}

}  // namespace

void BindShadowView(nb::module_& module) {
  nb::class_<PyShadowView>(module, "ShadowView",
                           R"(What a step attends to, in memory of the device.

Each is an array for whatever speaks DLPack (torch.from_dlpack), and keeps the session. Valid, once
the stream has come so far, until the next call for the layer.)")
      .def_prop_ro("resident_keys", &Get<ResidentKeys>,
                   nb::sig("def resident_keys(self) -> typing.Any"),
                   "[heads, tokens, elements of a row]: sinks, outliers, then the newest.")
      .def_prop_ro("resident_values", &Get<ResidentValues>,
                   nb::sig("def resident_values(self) -> typing.Any"), "Of the same tokens.")
      .def_prop_ro("chunks", &Get<Chunks>, nb::sig("def chunks(self) -> typing.Any"),
                   "int32 [heads, count]: which were selected, in rising order; chunk c is tokens\n"
                   "[c * chunk_tokens, (c + 1) * chunk_tokens).")
      .def_prop_ro("key_slots", &Get<KeySlots>, nb::sig("def key_slots(self) -> typing.Any"),
                   "int32 [heads, count]: where in `keys` the rows of each chunk are.")
      .def_prop_ro("value_slots", &Get<ValueSlots>, nb::sig("def value_slots(self) -> typing.Any"),
                   "int32 [heads, count]; -1: a relaxed fetch left it out.")
      .def_prop_ro("keys", &Get<Keys>, nb::sig("def keys(self) -> typing.Any"),
                   "[heads, slots, chunk_tokens, elements of a row].")
      .def_prop_ro("values", &Get<Values>, nb::sig("def values(self) -> typing.Any"),
                   "[heads, slots, chunk_tokens, elements of a row].")
      .def("to_host", &ToHost, nb::sig("def to_host(self) -> dict[str, numpy.typing.NDArray]"),
           "All of them by name, copied into arrays of numpy, for looks and tests; bf16 as its "
           "bits,\n"
           "in uint16. Waits for the copies, not for the stream: call it behind a strict fetch "
           "that\n"
           "was the last call. Blocks.");
}

}  // namespace cairn::python
