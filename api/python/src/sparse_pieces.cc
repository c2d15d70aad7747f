// SPDX-License-Identifier: Apache-2.0
//
// The pieces that a fetch wants: arrays of piece numbers, on the host or the device.
#include <utility>

#include "api/python/src/sparse.h"

namespace cairn::python {

Pieces::Pieces(nb::handle object, Rules rules) : rules_(std::move(rules)) {
  nb::object array = nb::borrow(object);
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    array = nb::module_::import_("numpy").attr("asarray")(object, "int64");
  }
  tensor_ = ImportTensor(array, rules_.what);
  const uint32_t heads = rules_.heads;
  if (tensor_.shape.size() == 1 && heads == 1) {
    tensor_.shape.insert(tensor_.shape.begin(), 1);
    tensor_.strides.insert(tensor_.strides.begin(), 0);
  }
  if (tensor_.shape.size() != 2 || tensor_.shape[0] != heads) {
    BadArgument(rules_.what + ": must have the shape [heads, count], of " + std::to_string(heads) +
                " heads; it is " + ShapeText(tensor_.shape));
  }
  if (tensor_.shape[1] > rules_.max) {
    BadArgument(rules_.what + ": " + std::to_string(tensor_.shape[1]) + " of a head, more than " +
                rules_.max_name + ", " + std::to_string(rules_.max));
  }
  if (tensor_.memory == MemoryKind::kCuda) {
    CheckDevice();
  } else {
    Copy();
  }
}

void Pieces::Into(SparseWanted* wanted) const {
  wanted->count = static_cast<uint32_t>(tensor_.shape[1]);
  wanted->on_device = tensor_.memory == MemoryKind::kCuda;
  wanted->pieces =
      wanted->on_device ? reinterpret_cast<const uint32_t*>(tensor_.data) : copy_.data();
  wanted->stride =
      wanted->on_device ? static_cast<uint32_t>(tensor_.strides[0] / kBytes) : wanted->count;
}

// The stream reads them there, without a conversion.
void Pieces::CheckDevice() const {
  if (tensor_.device != rules_.ordinal) {
    BadArgument(rules_.what + ": are on cuda:" + std::to_string(tensor_.device) +
                ", the session on cuda:" + std::to_string(rules_.ordinal));
  }
  if (tensor_.dtype != "i32" && tensor_.dtype != "u32") {
    BadArgument(rules_.what + ": on a device they must be int32 or uint32; they are " +
                tensor_.dtype);
  }
  if (!tensor_.DenseFrom(1) || tensor_.strides[0] < 0 || tensor_.strides[0] / kBytes > UINT32_MAX) {
    BadArgument(rules_.what + ": those of a head must lie one behind the other");
  }
}

template <typename T>
void Pieces::Add(T piece, int64_t head, int64_t i) {
  if (!std::in_range<uint32_t>(piece)) {
    BadArgument(rules_.what + "[" + std::to_string(head) + "][" + std::to_string(i) +
                "]: " + std::to_string(piece) + " is no piece");
  }
  copy_.push_back(static_cast<uint32_t>(piece));
}

void Pieces::Copy() {
  for (int64_t head = 0; head < tensor_.shape[0]; ++head) {
    for (int64_t i = 0; i < tensor_.shape[1]; ++i) {
      const std::byte* const at = tensor_.data + head * tensor_.strides[0] + i * tensor_.strides[1];
      if (tensor_.dtype == "i64") {
        Add(*reinterpret_cast<const int64_t*>(at), head, i);
      } else if (tensor_.dtype == "i32") {
        Add(*reinterpret_cast<const int32_t*>(at), head, i);
      } else if (tensor_.dtype == "u32") {
        Add(*reinterpret_cast<const uint32_t*>(at), head, i);
      } else {
        BadArgument(rules_.what + ": must be int32, uint32 or int64; they are " + tensor_.dtype);
      }
    }
  }
}

}  // namespace cairn::python
