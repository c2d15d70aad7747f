// SPDX-License-Identifier: Apache-2.0
//
// The XXH3 loops for wider vectors. Each is in a file that is compiled for its instruction set, and
// may be called only after checking that the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn::internal {

uint64_t HashAvx2(const void* data, size_t bytes);
uint64_t HashAvx512(const void* data, size_t bytes);

}  // namespace cairn::internal
