// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/tensor.h"

#include "api/python/src/byte_order.h"
#include "cairn/model.h"

namespace cairn::python {

namespace {

std::string DtypeText(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const std::string bits = std::to_string(dtype.bits);
  switch (static_cast<Code>(dtype.code)) {
    case Code::Bfloat: return "bf" + bits;
    case Code::Float: return "f" + bits;
    case Code::Int: return "i" + bits;
    case Code::UInt: return "u" + bits;
    case Code::Bool: return "bool";
    case Code::Float8_E4M3FN: return "f8e4m3";
    case Code::Float8_E5M2: return "f8e5m2";
    default: return "dtype code " + std::to_string(dtype.code) + " of " + bits + " bits";
  }
}

// The types that ml_dtypes adds to numpy, which neither DLPack nor buffers carry, as plain numbers.
bool ImportAsBits(nb::handle object, nb::ndarray<>* writable, nb::ndarray<nb::ro>* array,
                  std::string* dtype) {
  if (!nb::hasattr(object, "dtype") || !nb::hasattr(object, "view")) return false;
  const nb::object type = object.attr("dtype");
  const std::string name = nb::str(type).c_str();
  const bool half = name == "bfloat16";
  if (!half && name != "float8_e4m3fn" && name != "float8_e5m2") return false;
  *dtype = half ? "bf16" : name == "float8_e5m2" ? "f8e5m2" : "f8e4m3";
  const nb::object bits = object.attr("view")(half ? "uint16" : "uint8");
  return nb::try_cast(bits, *writable, false) || nb::try_cast(bits, *array, false);
}

// The same memory, with strides: ctypes leaves them out of its buffers, and nanobind reads them
// all the same.
nb::object WithStrides(nb::handle object) {
  if (nb::hasattr(object, "__dlpack__") || PyObject_CheckBuffer(object.ptr()) == 0) {
    return nb::borrow(object);
  }
  PyObject* const view = PyMemoryView_FromObject(object.ptr());
  if (view == nullptr) {
    PyErr_Clear();
    return nb::borrow(object);
  }
  return nb::steal(view);
}

}  // namespace

bool Tensor::DenseFrom(size_t from) const {
  int64_t expected = item_bytes();
  for (size_t i = shape.size(); i-- > from;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::string ForeignOrder(nb::handle object) {
  if (!nb::hasattr(object, "dtype")) return "";
  const nb::object dtype = object.attr("dtype");
  if (!nb::hasattr(dtype, "isnative") || !nb::hasattr(dtype, "str")) return "";
  return nb::cast<bool>(dtype.attr("isnative")) ? "" : nb::str(dtype.attr("str")).c_str();
}

Tensor ImportTensor(nb::handle object, const std::string& what) {
  Tensor tensor;
  if (const std::string foreign = ForeignOrder(object); !foreign.empty()) {
    BadArgument(what + ": its dtype is " + foreign + ", of the other byte order");
  }
  // Requested as writable memory first: so read-only memory is recognised.
  nb::ndarray<> writable;
  const nb::object given = WithStrides(object);
  if (!nb::try_cast(given, writable, false) && !nb::try_cast(given, tensor.array, false) &&
      !ImportAsBits(object, &writable, &tensor.array, &tensor.dtype)) {
    BadArgument(what + ": a " + std::string(nb::inst_name(object).c_str()) +
                " is no array that DLPack or the buffer protocol can share");
  }
  tensor.writable = writable.is_valid();
  if (tensor.writable) tensor.array = nb::ndarray<nb::ro>(writable);
  if (tensor.dtype.empty()) tensor.dtype = DtypeText(tensor.array.dtype());
  // Calls need only the address; those that write refuse memory that is not writable.
  tensor.data = static_cast<std::byte*>(const_cast<void*>(  // NOLINT
      static_cast<const void*>(tensor.array.data())));
  switch (tensor.array.device_type()) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value: break;
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      tensor.memory = MemoryKind::kCuda;
      tensor.device = static_cast<uint32_t>(tensor.array.device_id());
      break;
    default:
      BadArgument(what + ": is in the memory of a device of DLPack's type " +
                  std::to_string(tensor.array.device_type()) + "; host and CUDA memory will do");
  }
  const int64_t item = tensor.item_bytes();
  int64_t dense = item;
  tensor.strides.resize(tensor.array.ndim());
  for (size_t i = 0; i < tensor.array.ndim(); ++i) {
    tensor.shape.push_back(static_cast<int64_t>(tensor.array.shape(i)));
  }
  for (size_t i = tensor.array.ndim(); i-- > 0;) {
    // Older producers leave the strides of dense tensors out.
    const bool has_strides = tensor.array.stride_ptr() != nullptr;
    tensor.strides[i] = has_strides ? tensor.array.stride(i) * item : dense;
    dense *= tensor.shape[i];
  }
  return tensor;
}

Tensor ImportBytes(nb::handle object, const std::string& what, bool writable) {
  Tensor tensor = ImportTensor(object, what);
  if (tensor.memory != MemoryKind::kHost) BadArgument(what + ": must be in host memory");
  if (!tensor.DenseFrom(0)) BadArgument(what + ": is not contiguous");
  if (writable && !tensor.writable) BadArgument(what + ": is read only");
  return tensor;
}

}  // namespace cairn::python
