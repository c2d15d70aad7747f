// SPDX-License-Identifier: Apache-2.0
//
// Property: after a power cut at any moment the store opens and holds the state after some prefix
// of the operations, that prefix contains everything acknowledged at kPower, every KV byte is
// right, and opening twice finds the same. Method: random runs on the simulated machine; before
// every disk operation the power is cut, and unsynced writes survive whole, not at all, or torn.
// The same check must fail on a disk that acknowledges syncs without doing them.
#include "tests/crash/power_loss.h"

#include <gtest/gtest.h>

namespace cairn::crash {
namespace {

TEST(PowerLoss, EveryDiskFoundHoldsAPrefixWithAllThatWasAcknowledged) {
  uint64_t states = 0, evicted_bytes = 0, filled_bytes = 0;
  for (uint64_t seed = 1; states < 1500; ++seed) {
    const PowerLossResult result = RunPowerLoss({.seed = seed});
    ASSERT_EQ(result.violation, "");
    ASSERT_GT(result.states, 0u);
    states += result.states;
    evicted_bytes += result.evicted_bytes;
    filled_bytes += result.filled_bytes;
  }
  EXPECT_GT(evicted_bytes, 0u);
  EXPECT_GT(filled_bytes, 0u);
  RecordProperty("states", std::to_string(states));
}

TEST(PowerLoss, ASecondCrashAfterRecoveryCostsNothingMore) {
  for (uint64_t seed = 100; seed < 104; ++seed) {
    const PowerLossResult result = RunPowerLoss(
        {.seed = seed, .steps = 20, .choices_per_point = 1, .point_stride = 5, .depth = 3});
    ASSERT_EQ(result.violation, "");
  }
}

TEST(PowerLoss, ADiskThatDropsSyncsIsFoundOut) {
  bool noticed = false;
  for (uint64_t seed = 1; seed <= 5 && !noticed; ++seed) {
    noticed = !RunPowerLoss({.seed = seed, .drop_syncs = true}).violation.empty();
  }
  EXPECT_TRUE(noticed);
}

}  // namespace
}  // namespace cairn::crash
