// SPDX-License-Identifier: Apache-2.0
//
// Property and method of swarm_test.cc, with ten times as many seeds; together they meet every kind
// of fault.
#include <gtest/gtest.h>

#include "tests/sim/swarm_runs.h"
#include "tests/support/test_seed.h"

namespace cairn::sim {
namespace {

TEST(SwarmSlow, EverySeedKeepsItsPromisesAndRepeatsItself) {
  const SwarmResult all = RunSeedsTwice(testing::TestSeed(), 200);
  if (HasFailure()) return;
  for (size_t i = 0; i <= static_cast<size_t>(Feature::kRot); ++i) {
    EXPECT_GT(all.strikes[i], 0U) << FeatureName(static_cast<Feature>(i));
  }
  EXPECT_GT(all.power_losses, 0U);
  EXPECT_GT(all.kills, 0U);
  EXPECT_GT(all.poisoned, 0U);
  EXPECT_GT(all.refused_openings, 0U);
  EXPECT_GT(all.cancelled, 0U);
  EXPECT_GT(all.copies, 0U);
  EXPECT_GT(all.follows, 0U);
  EXPECT_GT(all.leak_checks, 0U);
  EXPECT_GT(all.damaged_reads, 0U);
}

}  // namespace
}  // namespace cairn::sim
