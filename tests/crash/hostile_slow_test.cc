// SPDX-License-Identifier: Apache-2.0
//
// As hostile_test.cc, with more of the cases. All of them: tools/soak hostile.
#include <gtest/gtest.h>

#include "tests/crash/hostile_files.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(HostileSlow, FilesEndWithAStatus) {
  const HostileSweep sweep = SweepHostile(testing::TestSeed(), /*stride=*/47);
  EXPECT_GE(sweep.runs, 440u);
  EXPECT_EQ(sweep.violations, "");
}

}  // namespace
}  // namespace cairn::crash
