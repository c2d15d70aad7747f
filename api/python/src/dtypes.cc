// SPDX-License-Identifier: Apache-2.0
#include "api/python/src/dtypes.h"

namespace cairn::python {

nb::dlpack::dtype NumpyDtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return nb::dtype<float>();
    case Dtype::kF16: return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case Dtype::kBf16: return nb::dtype<uint16_t>();
    case Dtype::kI8: return nb::dtype<int8_t>();
    default: return nb::dtype<uint8_t>();
  }
}

nb::dlpack::dtype DlpackDtype(Dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  switch (dtype) {
    case Dtype::kBf16: return {static_cast<uint8_t>(Code::Bfloat), 16, 1};
    case Dtype::kF8E4M3: return {static_cast<uint8_t>(Code::Float8_E4M3FN), 8, 1};
    case Dtype::kF8E5M2: return {static_cast<uint8_t>(Code::Float8_E5M2), 8, 1};
    default: return NumpyDtype(dtype);
  }
}

}  // namespace cairn::python
