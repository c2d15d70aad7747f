// SPDX-License-Identifier: Apache-2.0
//
// Arrays of numpy whose bytes are in the other order: neither DLPack nor buffers carry them.
#pragma once

#include <string>

#include "api/python/src/common.h"

namespace cairn::python {

// Their dtype, say ">u4"; else empty.
std::string ForeignOrder(nb::handle object);

}  // namespace cairn::python
