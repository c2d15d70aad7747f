// SPDX-License-Identifier: Apache-2.0
//
// Property and method of power_loss_test.cc: all subsets of up to twelve unsynced writes, and
// longer runs, from a seed that follows from the commit.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/power_loss.h"
#include "tests/crash/script_cuts.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

PowerLossResult RunAndTell(const PowerLossOptions& options, uint64_t states) {
  const PowerLossResult all = RunPowerLosses(options, states);
  std::printf("%s\n", all.Counts().c_str());
  ::testing::Test::RecordProperty("states", std::to_string(all.states));
  EXPECT_EQ(all.violation, "");
  return all;
}

TEST(PowerLossSlow, EverySubsetOfTwelveWrites) {
  RunAndTell({.seed = testing::TestSeed(), .steps = 40, .point_stride = 7}, 20'000);
}

TEST(PowerLossSlow, LongRunsAndCrashesInARow) {
  const PowerLossResult all = RunAndTell({.seed = testing::TestSeed(),
                                          .steps = 100,
                                          .exhaustive_writes_max = 5,
                                          .samples = 8,
                                          .depth = 3},
                                         20'000);
  EXPECT_GT(all.depths[1], 0U);
  EXPECT_GT(all.depths[2], 0U);
}

// One commit in 23 tries each operation; all at once: tools/soak script-crashes.
TEST(PowerLossSlow, EveryScriptWithEverySubset) {
  const PowerLossResult all = RunScriptCuts({.seed = testing::TestSeed(), .point_stride = 23});
  std::printf("%s\n", all.Counts().c_str());
  ::testing::Test::RecordProperty("states", std::to_string(all.states));
  EXPECT_EQ(all.violation, "");
  EXPECT_GE(all.states, 12'000U);
}

}  // namespace
}  // namespace cairn::crash
