// SPDX-License-Identifier: Apache-2.0
//
// The faults of a swarm's disk, drawn operation by operation.
#pragma once

#include <array>
#include <cstdint>

#include "base/core/seeded_random.h"
#include "sim/disk.h"
#include "tests/sim/swarm_config.h"

namespace cairn::sim {

class SwarmFaults {
 public:
  SwarmFaults(const SwarmConfig& config, uint64_t seed) : config_(config), random_(seed) {}

  // Operations of this disk fail from here on, as long as it is `on`.
  void Strike(io::SimDisk* disk);
  // To be called from the disk's hook.
  void BeforeOperation(const io::SimOperation& operation);
  void set_on(bool on) { on_ = on; }
  bool on() const { return on_; }

  bool lied() const { return lied_; }
  bool lost_sync() const { return lost_sync_; }  // On this disk, what is shown is not all there.
  const std::array<uint64_t, kFeatures>& strikes() const { return strikes_; }

 private:
  bool Draw(Feature feature);
  bool DrawTransfer(Feature feature, const io::SimOperation& operation);
  void Rot();
  io::SimPlace Anywhere();

  const SwarmConfig& config_;
  SeededRandom random_;
  io::SimDisk* disk_ = nullptr;
  bool on_ = true, lied_ = false, lost_sync_ = false, broken_ = false;
  std::array<uint64_t, kFeatures> strikes_{};
};

}  // namespace cairn::sim
