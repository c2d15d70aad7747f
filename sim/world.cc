// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

namespace cairn::io {

SimWorld MakeSimWorld(uint64_t seed, SimDiskOptions options) {
  options.seed = seed;
  auto scheduler = std::make_shared<SimScheduler>(seed);
  return {.scheduler = scheduler, .disk = std::make_shared<SimDisk>(options, scheduler.get())};
}

SimWorld CrashWorld(const SimDisk& disk, const CrashChoice& choice, bool timed) {
  auto scheduler = std::make_shared<SimScheduler>(choice.seed);
  return {.scheduler = scheduler,
          .disk = disk.CrashClone(choice, timed ? scheduler.get() : nullptr)};
}

}  // namespace cairn::io
