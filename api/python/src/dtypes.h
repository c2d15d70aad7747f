// SPDX-License-Identifier: Apache-2.0
//
// The dtypes of planes in arrays for Python.
#pragma once

#include <nanobind/ndarray.h>

#include "api/python/src/common.h"
#include "cairn/model.h"

namespace cairn::python {

// The dtype in numpy; raw bits if numpy lacks it.
nb::dlpack::dtype NumpyDtype(Dtype dtype);
// The dtype in DLPack.
nb::dlpack::dtype DlpackDtype(Dtype dtype);

}  // namespace cairn::python
