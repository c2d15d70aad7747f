// SPDX-License-Identifier: Apache-2.0
//
// A whole simulated machine: disk and scheduler from one seed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/io/world.h"
#include "sim/disk.h"
#include "sim/scheduler.h"

namespace cairn::io {

struct SimWorld {
  std::shared_ptr<SimScheduler> scheduler;
  std::shared_ptr<SimDisk> disk;

  World world() const { return {.files = disk, .scheduler = scheduler}; }
};

// Transfers take virtual time and switch fibers. The seed in `options` is replaced.
SimWorld MakeSimWorld(uint64_t seed, SimDiskOptions options = {});

// The machine after a crash of `disk` at this moment. With `timed`, transfers take virtual time and
// switch fibers there too; without, they execute at once.
SimWorld CrashWorld(const SimDisk& disk, const CrashChoice& choice, bool timed = false);

}  // namespace cairn::io
