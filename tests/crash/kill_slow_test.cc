// SPDX-License-Identifier: Apache-2.0
//
// Property and method of kill_test.cc, more kills on each real backend, on one of them with another
// process that follows, from a seed that follows from the commit.
#include <gtest/gtest.h>

#include "base/io/world.h"
#include "tests/crash/kill_loop.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(KillSlow, KillsOnThreads) {
  const KillResult result =
      RunKillLoop({.backend = Backend::kThreads, .seed = testing::TestSeed(), .kills = 100});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.kills, 100u);
}

TEST(KillSlow, KillsOnUringWithAFollower) {
  if (!io::MakeRealWorld(io::IoBackend::kUring).ok()) GTEST_SKIP() << "io_uring is refused here";
  const KillResult result = RunKillLoop(
      {.backend = Backend::kUring, .seed = testing::TestSeed() + 1, .kills = 50, .follow = true});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.kills, 50u);
}

}  // namespace
}  // namespace cairn::crash
