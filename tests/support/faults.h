// SPDX-License-Identifier: Apache-2.0
//
// Faults of a simulated disk that several tests put in.
#pragma once

#include <cerrno>

#include "sim/disk.h"

namespace cairn::testing {

// No table can be read until the faults are cleared.
inline io::SimFault TableReadsFail() {
  return {.when =
              [](const io::SimOperation& one) {
                return one.op == io::SimOp::kRead && one.path.find("/tables/") != one.path.npos;
              },
          .error = EIO,
          .persistent = true};
}

}  // namespace cairn::testing
