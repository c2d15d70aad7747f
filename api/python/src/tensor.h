// SPDX-License-Identifier: Apache-2.0
//
// An array of Python as memory: numpy, torch and whatever else speaks DLPack or the buffer
// protocol. Nothing is copied.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <vector>

#include "api/python/src/common.h"
#include "cairn/kv_view.h"

namespace cairn::python {

struct Tensor {
  nb::ndarray<nb::ro> array;  // Keeps the memory.
  std::string dtype;          // As Dtype is called, or "u16", "i64", "bool", ...
  bool writable = false;
  std::byte* data = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // In bytes.
  MemoryKind memory = MemoryKind::kHost;
  uint32_t device = 0;

  uint32_t item_bytes() const { return static_cast<uint32_t>(array.itemsize()); }
  uint64_t bytes() const { return array.nbytes(); }
  // Whether dimensions [from, end) lie densely, the last index fastest.
  bool DenseFrom(size_t from) const;
};

// `what` is how a refusal calls it. Throws StatusError: no array, or of a device that is none of
// CUDA's.
Tensor ImportTensor(nb::handle object, const std::string& what);

// "[2, 16, 8]"
std::string ShapeText(const std::vector<int64_t>& shape);

// Dense memory of the host, as bytes; `writable` refuses what is read only. The tensor keeps it.
Tensor ImportBytes(nb::handle object, const std::string& what, bool writable);

}  // namespace cairn::python
