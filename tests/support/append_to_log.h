// SPDX-License-Identifier: Apache-2.0
//
// Writes what no call of this version writes: a record by hand, behind all that a closed store's
// log holds.
#pragma once

#include <string>

#include "base/io/world.h"
#include "cairn/options.h"
#include "wal/log.h"

namespace cairn::testing {

// The record is durable on return. `store`: the directory; nobody has it open. `spec` has no
// strips.
Status AppendToLog(io::World world, const std::string& store, const Options& options,
                   const wal::RecordSpec& spec);

}  // namespace cairn::testing
