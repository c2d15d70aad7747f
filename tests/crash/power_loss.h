// SPDX-License-Identifier: Apache-2.0
//
// Cuts the power of a simulated machine at every moment of a random run, and checks each disk that
// may be found after.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/options.h"

namespace cairn::crash {

struct PowerLossResult {
  uint64_t states = 0;      // Disks recovered and checked; of one life no two are the same.
  uint64_t exhaustive = 0;  // Crash points of which every disk with whole writes was checked.
  uint64_t sampled = 0;     // Crash points with more unsynced writes than that.
  uint64_t depths[3] = {0, 0, 0};  // By crashes before it, less one: how many of `states`.
  uint64_t copies = 0;             // Copies of a store that were opened as well.
  uint64_t second_recoveries = 0;  // Opened for writing, closed, and opened so again.
  // In the runs before; so they may matter.
  uint64_t evicted_bytes = 0, filled_bytes = 0, joined_nodes = 0, sealed = 0, resting = 0;
  std::string violation;  // The first broken promise; empty if none.

  void Add(const PowerLossResult& other);  // The counts.
  std::string Counts() const;              // One line.
};

struct PowerLossOptions {
  uint64_t seed = 1;
  uint64_t steps = 40;               // Operations of the run.
  uint64_t states_max = UINT64_MAX;  // The run ends after this many checked disks.
  // At a point with so few unsynced writes every subset of them is tried.
  uint32_t exhaustive_writes_max = 12;
  uint64_t samples = 64;      // Disks drawn at other points...
  uint64_t torn_samples = 4;  // ...and with torn sectors at every point.
  // Every how many disk operations the power is cut; the seed says with which it begins.
  uint64_t point_stride = 1;
  // Crashes in a row: after recovery the run goes on, beginning with the recovery, and is cut
  // again.
  uint32_t depth = 1;
  uint64_t deeper_one_in = 64;  // One of this many states, ...
  uint32_t deeper_max = 6;      // ...and this many of each run.
  // Canaries, each of which the check must find: a disk that lies, and operations that are taken
  // for acknowledged which were not at kPower.
  bool drop_syncs = false;
  Durability claimed = Durability::kPower;
};

PowerLossResult RunPowerLoss(const PowerLossOptions& options);
// Seeds from options.seed on, until that many disks were checked or one was wrong.
PowerLossResult RunPowerLosses(PowerLossOptions options, uint64_t states);

}  // namespace cairn::crash
