// SPDX-License-Identifier: Apache-2.0
//
// One store on one simulated machine, from one seed: clients that work at the same time, a disk
// that fails in the ways that the seed draws, power cuts, kills and reopenings; and the check that
// every promise is kept.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/options.h"
#include "tests/sim/swarm_config.h"

namespace cairn::sim {

struct SwarmOptions {
  uint64_t seed = 1;
  uint64_t operations = 400;  // Shared by all clients.
  // Canaries, each of which the check must find: a disk that does not sync, a weaker level that is
  // taken for kPower, and lies that the check does not know of.
  bool drop_syncs = false;
  Durability claimed = Durability::kPower;
  bool hides_lies = false;
};

struct SwarmResult {
  std::string violation;  // The first broken promise; empty if none.
  std::string config;
  // Every operation of the disk, and the scheduler's hash at the end of every life.
  std::vector<std::string> trace;
  uint64_t trace_hash = 0;

  uint64_t operations = 0, disk_operations = 0, lives = 0;
  uint64_t power_losses = 0, kills = 0, poisoned = 0, refused_openings = 0, salvages = 0;
  uint64_t refused = 0, cancelled = 0, reads = 0, copies = 0, follows = 0, leak_checks = 0,
           resting = 0;
  uint64_t finds = 0, found = 0, objects_read = 0;
  uint64_t damaged_reads = 0;                 // kCorruption, after the disk lied.
  std::array<uint64_t, kFeatures> strikes{};  // How many faults struck, by feature.

  void Add(const SwarmResult& other);  // The counts.
  std::string Counts() const;          // One line.
};

SwarmResult RunSwarm(const SwarmOptions& options);

}  // namespace cairn::sim
