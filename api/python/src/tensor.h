// SPDX-License-Identifier: Apache-2.0
//
// A Python array as memory: numpy, torch and everything else with DLPack or the buffer protocol.
// Nothing is copied.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>
#include <vector>

#include "api/python/src/common.h"
#include "cairn/kv_view.h"

namespace cairn::python {

struct Tensor {
  nb::ndarray<nb::ro> array;  // Keeps the memory alive.
  std::string dtype;          // The name of a Dtype, or "u16", "i64", "bool", ...
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

// `what` is its name in errors. Throws StatusError: no array, or on a device other than CUDA's.
Tensor ImportTensor(nb::handle object, const std::string& what);

// "[2, 16, 8]"
std::string ShapeText(const std::vector<int64_t>& shape);

// Dense memory of the host, as bytes; `writable` refuses read-only memory. The tensor keeps it
// alive.
Tensor ImportBytes(nb::handle object, const std::string& what, bool writable);

}  // namespace cairn::python
