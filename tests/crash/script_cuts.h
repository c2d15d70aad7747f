// SPDX-License-Identifier: Apache-2.0
//
// Cuts the power before every disk operation of scripted runs, with every subset of what is not
// synced then, and checks each disk that may be found after.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/crash/power_loss.h"

namespace cairn::crash {

struct ScriptCutsOptions {
  std::vector<std::string> scripts{};  // Empty: all.
  uint64_t seed = 1;                   // Begins all draws; picks the first operation with a stride.
  uint64_t states_max = UINT64_MAX;    // Ends after this many checked disks.
  uint64_t point_stride = 1;           // Every how many disk operations the power is cut.
  // As in PowerLossOptions.
  uint32_t exhaustive_writes_max = 12;
  uint64_t samples = 64;
  uint64_t torn_samples = 4;
  // A canary that the check must find: a disk that lies.
  bool drop_syncs = false;
};

PowerLossResult RunScriptCuts(const ScriptCutsOptions& options);

}  // namespace cairn::crash
