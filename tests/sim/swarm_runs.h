// SPDX-License-Identifier: Apache-2.0
//
// Many seeds of the swarm, each run twice.
#pragma once

#include <cstdint>

#include "tests/sim/swarm.h"

namespace cairn::sim {

// Seeds from `seed` on; ends with the first that breaks a promise or does not repeat itself, and
// fails the test with what was wrong and the command that repeats it. The counts of all.
SwarmResult RunSeedsTwice(uint64_t seed, uint64_t count, SwarmOptions options = {});

}  // namespace cairn::sim
