// SPDX-License-Identifier: Apache-2.0
//
// Property: a process killed at any moment loses nothing that was acknowledged at kProcess or
// kPower, by it or by one before it, and leaves no wrong byte.
// Method: a child appends to a store on a real disk and reports each acknowledgement through a
// pipe; SIGKILL comes at a random moment; the parent opens the store and compares, and in one run
// has followed it before, as another process. Claiming that kMemory survives as well must be found
// out.
#include "tests/crash/kill_loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/io/world.h"
#include "tests/crash/real_writer.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(Kill, ThreadsLoseNothingAcknowledged) {
  const KillResult result = RunKillLoop(
      {.backend = Backend::kThreads, .seed = testing::QuickTestSeed() + 11, .kills = 15});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.kills, 15u);
  EXPECT_GT(result.acknowledged, 15u);
}

TEST(Kill, UringLosesNothingAcknowledged) {
  if (!io::MakeRealWorld(io::IoBackend::kUring).ok()) GTEST_SKIP() << "io_uring is refused here";
  const KillResult result =
      RunKillLoop({.backend = Backend::kUring, .seed = testing::QuickTestSeed() + 12, .kills = 15});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.kills, 15u);
}

TEST(Kill, WhoFollowsInAnotherProcessReadsRightAndSeesAllThatWasAcknowledged) {
  const KillResult result = RunKillLoop({.backend = Backend::kAuto,
                                         .seed = testing::QuickTestSeed() + 13,
                                         .kills = 12,
                                         .follow = true});
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.kills, 12u);
  EXPECT_GT(result.followed, 0u);
}

TEST(Kill, ClaimingThatMemorySurvivesIsFoundOut) {
  bool noticed = false;
  for (uint64_t seed = 1; seed <= 60 && !noticed; ++seed) {  // 20 were not always enough.
    noticed = !RunKillLoop({.backend = Backend::kThreads,
                            .seed = seed,
                            .kills = 5,
                            .claimed = Durability::kMemory})
                   .violation.empty();
  }
  EXPECT_TRUE(noticed);
}

TEST(Kill, WhatAnEarlierChildWasPromisedIsNotForgotten) {
  const KillResult result =
      RunKillLoop({.backend = Backend::kThreads, .seed = 1, .kills = 5, .forgets = true});
  EXPECT_NE(std::string::npos, result.violation.find("were acknowledged")) << result.violation;
}

TEST(Kill, AChildThatCrashesByItselfWasNotKilled) {
  const auto end_of = [](const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(3);
    }
    int ended = 0;
    waitpid(child, &ended, 0);
    return EndOf(ended);
  };
  EXPECT_EQ(WriterEnd::kRefused, end_of([] {}));
  EXPECT_EQ(WriterEnd::kCrashed, end_of([] { raise(SIGABRT); }));
  EXPECT_EQ(WriterEnd::kKilled, end_of([] { raise(SIGKILL); }));
}

}  // namespace
}  // namespace cairn::crash
