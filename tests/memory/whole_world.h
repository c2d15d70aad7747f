// SPDX-License-Identifier: Apache-2.0
//
// A simulated machine whose own allocations never fail, but for that of a queue: only those of the
// code above it do. All of its threads are fibers, and who goes on goes on as one whose allocations
// may fail.
#pragma once

#include <string>

#include "base/io/world.h"
#include "sim/disk.h"

namespace cairn::memory {

// `disk` has no scheduler, so that calls of it switch no fibers. Told of an exception that left a
// thread's body, which ends a real process: *escaped.
io::World MakeWholeWorld(std::shared_ptr<io::SimDisk> disk, uint64_t seed, std::string* escaped);

}  // namespace cairn::memory
