// SPDX-License-Identifier: Apache-2.0
//
// Cuts the power of a simulated machine at many moments of a random run, and checks each disk that
// may be found after.
#pragma once

#include <cstdint>
#include <string>

namespace cairn::crash {

struct PowerLossResult {
  uint64_t states = 0;                           // Disks recovered.
  uint64_t evicted_bytes = 0, filled_bytes = 0;  // In the runs before; so they may matter.
  std::string violation;                         // The first broken promise; empty if none.
};

struct PowerLossOptions {
  uint64_t seed = 1;
  uint64_t steps = 40;             // Operations of the run.
  uint64_t choices_per_point = 2;  // Disks tried at each crash point.
  uint64_t point_stride = 1;       // Every how many disk operations the power is cut.
  uint32_t depth = 1;       // Crashes in a row: after recovery the run goes on and is cut again.
  bool drop_syncs = false;  // A disk that lies: the check must fail.
};

PowerLossResult RunPowerLoss(const PowerLossOptions& options);

}  // namespace cairn::crash
