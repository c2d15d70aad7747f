// SPDX-License-Identifier: Apache-2.0
//
// Property: a store from elsewhere, whose files say anything under checksums that fit, is refused
// or used, for writing, for reading and with what is damaged set aside: no call aborts, takes a
// minute, or takes memory without bounds. Method: each case in a process of its own; a share of
// them here, drawn by the seed, and more in hostile_slow_test.cc.
#include <gtest/gtest.h>

#include "tests/crash/hostile_files.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(Hostile, FilesEndWithAStatus) {
  const HostileSweep sweep = SweepHostile(testing::QuickTestSeed(), /*stride=*/101);
  EXPECT_GE(sweep.runs, 200u);
  EXPECT_EQ(sweep.violations, "");
}

}  // namespace
}  // namespace cairn::crash
