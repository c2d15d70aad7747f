// SPDX-License-Identifier: Apache-2.0
//
// Real crashes: a child process writes to a store on a real disk and is killed at a random moment.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/options.h"

namespace cairn::crash {

struct KillOptions {
  Backend backend = Backend::kAuto;
  uint64_t seed = 1;
  uint32_t kills = 10;
  // The level that the child takes for an acknowledgement. kProcess and kPower survive a kill;
  // kMemory does not, so claiming it must be found out.
  Durability claimed = Durability::kProcess;
  // The parent follows the store meanwhile, whose files move faster than by default.
  bool follow = false;
  // A canary that the check must find: between two children all is lost.
  bool forgets = false;
};

struct KillResult {
  uint32_t kills = 0;
  uint64_t acknowledged = 0;  // Appends acknowledged in all.
  uint64_t followed = 0;      // Whole stores read right beside a living writer.
  std::string violation;
};

KillResult RunKillLoop(const KillOptions& options);

}  // namespace cairn::crash
