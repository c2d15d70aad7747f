// SPDX-License-Identifier: Apache-2.0
//
// Runs a log on a simulated machine, cuts the power at every operation in every way worth trying,
// recovers what is left and checks it against what had been acknowledged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/world.h"
#include "tests/support/log_fixture.h"

namespace cairn::wal {

struct CrashPlan {
  uint64_t seed = 1;
  int steps = 30;                // Appends and other calls of the run.
  size_t all_subsets_up_to = 5;  // Up to this many unsynced changes, every subset is tried...
  int random_choices = 3;        // ...and always this many random ones, with torn writes.
  int second_crash_every = 50;   // After this many-th recovery the log goes on, and crashes again.
  SyncMethod sync_method = SyncMethod::kFdatasync;
  bool large_records = false;
  bool drop_syncs = false;  // A disk that lies: violations are expected.
};

struct CrashReport {
  uint64_t crashes = 0;  // States that were recovered and checked.
  uint64_t torn_tails = 0;
  uint64_t second_crashes = 0;
  uint64_t segments_used = 0;           // By the first run.
  std::vector<std::string> violations;  // At most a few.
};

CrashReport EnumerateCrashes(const CrashPlan& plan);

}  // namespace cairn::wal
