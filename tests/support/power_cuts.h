// SPDX-License-Identifier: Apache-2.0
//
// The machines that a power cut before each operation of a simulated disk may leave: with all that
// was not synced, with none of it, and with what three seeds keep.
#pragma once

#include <string>
#include <vector>

#include "sim/world.h"

namespace cairn::testing {

class PowerCuts {
 public:
  struct Machine {
    io::SimWorld world;
    int acknowledged = 0;  // As it was at the cut.
    std::string when;      // The operation that the disk did not come to.
  };

  explicit PowerCuts(const io::SimWorld& world);
  ~PowerCuts();
  PowerCuts(const PowerCuts&) = delete;
  PowerCuts& operator=(const PowerCuts&) = delete;

  void Begin() { counting_ = true; }
  void End() { counting_ = false; }
  void Acknowledge() { ++acknowledged_; }  // For the cuts that follow.
  const std::vector<Machine>& machines() const { return machines_; }

 private:
  void Cut(const io::CrashChoice& choice, const io::SimOperation& before);

  const io::SimWorld world_;
  bool counting_ = false;
  int acknowledged_ = 0;
  std::vector<Machine> machines_;
};

}  // namespace cairn::testing
