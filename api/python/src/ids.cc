// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/ids.h"

#include <memory>

#include "api/python/src/byte_order.h"

namespace cairn::python {

namespace {

[[noreturn]] void NoId(const char* name, size_t i, const std::string& value) {
  BadArgument(std::string(name) + "[" + std::to_string(i) + "]: " + value +
              " is no token id (0 to 4294967295)");
}

template <typename T>
void CopyRow(const Tensor& tensor, const char* name, std::vector<TokenId>* out) {
  const auto count = static_cast<size_t>(tensor.shape[0]);
  out->resize(count);
  for (size_t i = 0; i < count; ++i) {
    const T value =
        *reinterpret_cast<const T*>(tensor.data + static_cast<int64_t>(i) * tensor.strides[0]);
    if (!std::in_range<TokenId>(value)) NoId(name, i, std::to_string(value));
    (*out)[i] = static_cast<TokenId>(value);
  }
}

// False: the dtype is none of whole numbers.
bool CopyNumbers(const Tensor& tensor, const char* name, std::vector<TokenId>* out) {
  const auto copy = [&]<typename T>(const char* dtype) {
    if (tensor.dtype != dtype) return false;
    CopyRow<T>(tensor, name, out);
    return true;
  };
  return copy.operator()<uint32_t>("u32") || copy.operator()<int32_t>("i32") ||
         copy.operator()<int64_t>("i64") || copy.operator()<uint64_t>("u64") ||
         copy.operator()<uint16_t>("u16") || copy.operator()<int16_t>("i16") ||
         copy.operator()<uint8_t>("u8") || copy.operator()<int8_t>("i8");
}

void CopyList(nb::handle object, const char* name, std::vector<TokenId>* out) {
  const size_t count = nb::len(object);
  out->reserve(count);
  size_t i = 0;
  for (const nb::handle item : object) {
    int64_t id = 0;
    if (!WholeNumber(item, &id) || !std::in_range<TokenId>(id)) {
      NoId(name, i, nb::repr(item).c_str());
    }
    out->push_back(static_cast<TokenId>(id));
    ++i;
  }
}

// Arrays of the other byte order are copied.
nb::object InNativeOrder(nb::handle object) {
  const bool foreign = nb::hasattr(object, "astype") && nb::hasattr(object, "dtype") &&
                       !ForeignOrder(object).empty();
  if (!foreign) return nb::borrow(object);
  return object.attr("astype")(object.attr("dtype").attr("newbyteorder")("="));
}

Tensor ImportRow(nb::handle object, const char* name) {
  Tensor tensor = ImportTensor(object, name);
  if (tensor.shape.size() != 1) {
    BadArgument(std::string(name) + ": must have one dimension; it has the shape " +
                ShapeText(tensor.shape));
  }
  if (tensor.memory != MemoryKind::kHost) {
    BadArgument(std::string(name) + ": must be in host memory");
  }
  return tensor;
}

}  // namespace

bool WholeNumber(nb::handle object, int64_t* number) {
  if (PyBool_Check(object.ptr())) return false;
  if (nb::try_cast(object, *number, false)) return true;
  const nb::object whole = nb::steal(PyNumber_Index(object.ptr()));
  if (!whole.is_valid()) PyErr_Clear();
  return whole.is_valid() && nb::try_cast(whole, *number, false);
}

Ids::Ids(nb::handle object, const char* name) {
  if (object.is_none()) return;
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object) ||
      PyRange_Check(object.ptr())) {
    CopyList(object, name, &copy_);
    span_ = copy_;
    return;
  }
  Tensor tensor = ImportRow(InNativeOrder(object), name);
  if (tensor.dtype == "u32" && tensor.DenseFrom(0)) {
    span_ = {reinterpret_cast<const TokenId*>(tensor.data), static_cast<size_t>(tensor.shape[0])};
    tensor_ = std::move(tensor);
    return;
  }
  if (!CopyNumbers(tensor, name, &copy_)) {
    BadArgument(std::string(name) + ": " + tensor.dtype + " are no token ids");
  }
  span_ = copy_;
}

IdBuffer::IdBuffer(nb::handle object, const char* name) {
  if (object.is_none()) return;
  Tensor tensor = ImportRow(object, name);
  if (tensor.dtype != "u32" && tensor.dtype != "i32") {
    BadArgument(std::string(name) + ": must be uint32 or int32; it is " + tensor.dtype);
  }
  if (!tensor.writable) BadArgument(std::string(name) + ": is read only");
  if (!tensor.DenseFrom(0)) BadArgument(std::string(name) + ": is not contiguous");
  span_ = {reinterpret_cast<TokenId*>(tensor.data), static_cast<size_t>(tensor.shape[0])};
  tensor_ = std::move(tensor);
}

nb::object NumpyIds(std::vector<TokenId>&& ids) {
  auto owned = std::make_unique<std::vector<TokenId>>(std::move(ids));
  const nb::capsule owner(owned.get(), [](void* pointer) noexcept {
    delete static_cast<std::vector<TokenId>*>(pointer);
  });
  std::vector<TokenId>* const kept = owned.release();
  return nb::cast(
      nb::ndarray<nb::numpy, TokenId, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

}  // namespace cairn::python
