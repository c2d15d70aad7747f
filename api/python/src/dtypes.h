// SPDX-License-Identifier: Apache-2.0
//
// What dtypes of planes are in the arrays that Python is given.
#pragma once

#include <nanobind/ndarray.h>

#include "api/python/src/common.h"
#include "cairn/model.h"

namespace cairn::python {

// What numpy has for a dtype; bits where it has none.
nb::dlpack::dtype NumpyDtype(Dtype dtype);
// What DLPack calls it.
nb::dlpack::dtype DlpackDtype(Dtype dtype);

}  // namespace cairn::python
