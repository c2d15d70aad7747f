// SPDX-License-Identifier: Apache-2.0
//
// Property and method of power_loss_test.cc, over 20,000 disks.
#include <gtest/gtest.h>

#include "tests/crash/power_loss.h"

namespace cairn::crash {
namespace {

TEST(PowerLossSlow, TwentyThousandDisks) {
  uint64_t states = 0;
  for (uint64_t seed = 1000; states < 20000; ++seed) {
    const PowerLossResult result =
        RunPowerLoss({.seed = seed, .steps = 60, .choices_per_point = 3, .depth = 2});
    ASSERT_EQ(result.violation, "");
    states += result.states;
  }
  RecordProperty("states", std::to_string(states));
}

}  // namespace
}  // namespace cairn::crash
