// SPDX-License-Identifier: Apache-2.0
//
// Property: a simulated run is a function of its seed; fibers interleave, time is virtual, and a
// deadlock is reported. Method: small programs run twice with one seed and once with others.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "sim/scheduler.h"

namespace cairn::io {
namespace {

// The order in which three fibers take ten steps each.
std::string Interleaving(uint64_t seed, uint64_t* hash = nullptr) {
  SimScheduler scheduler(seed);
  std::string steps;
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (const char name : {'a', 'b', 'c'}) {
      threads.push_back(scheduler.StartThread(std::string(1, name), [&, name] {
        for (int step = 0; step < 10; ++step) {
          steps += name;
          scheduler.Yield();
        }
      }));
    }
  }
  if (hash != nullptr) *hash = scheduler.schedule_hash();
  return steps;
}

TEST(SimScheduler, TheSameSeedGivesTheSameRun) {
  uint64_t first = 0, second = 0, other = 0;
  EXPECT_EQ(Interleaving(42, &first), Interleaving(42, &second));
  EXPECT_EQ(first, second);
  (void)Interleaving(43, &other);
  EXPECT_NE(first, other);
}

TEST(SimScheduler, DifferentSeedsInterleaveDifferently) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string steps = Interleaving(seed);
    EXPECT_EQ(steps.size(), 30u);
    seen.insert(steps);
  }
  EXPECT_GT(seen.size(), 45u);
}

TEST(SimScheduler, StartsNothingBeforeTheStarterWaits) {
  SimScheduler scheduler(1);
  bool ran = false;
  auto thread = scheduler.StartThread("t", [&] { ran = true; });
  EXPECT_FALSE(ran);
  thread.reset();
  EXPECT_TRUE(ran);
}

TEST(SimScheduler, TimeJumpsToTheNextDeadline) {
  SimScheduler scheduler(1);
  constexpr uint64_t kHourNs = 3600ull * 1'000'000'000;
  const uint64_t start_ns = scheduler.MonotonicNs(), wall_ns = scheduler.WallNs();
  std::vector<int> order;
  {
    auto late = scheduler.StartThread("late", [&] {
      scheduler.Sleep(2 * kHourNs);
      order.push_back(2);
    });
    auto soon = scheduler.StartThread("soon", [&] {
      scheduler.Sleep(kHourNs);
      order.push_back(1);
    });
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  const uint64_t passed_ns = scheduler.MonotonicNs() - start_ns;
  EXPECT_GE(passed_ns, 2 * kHourNs);
  EXPECT_LT(passed_ns, 2 * kHourNs + 1'000'000);
  EXPECT_EQ(scheduler.WallNs() - wall_ns, passed_ns);
}

TEST(SimScheduler, WakesSpuriouslyNowAndThen) {
  SimScheduler scheduler(5);
  std::atomic<uint32_t> word{0}, stop{0};
  int wakes = 0;
  {
    auto waiter = scheduler.StartThread("waiter", [&] {
      while (stop.load() == 0) {
        EXPECT_TRUE(scheduler.Wait(word, 0, kNoDeadline));
        ++wakes;
      }
    });
    for (int i = 0; i < 5000; ++i) scheduler.Yield();
    stop = 1;
    word = 1;
    scheduler.WakeAll(word);
  }
  EXPECT_GT(wakes, 5);
}

TEST(SimScheduler, AWaitWithDeadlineTellsTimeoutFromWake) {
  SimScheduler scheduler(9);
  std::atomic<uint32_t> word{0};
  auto waker = scheduler.StartThread("waker", [&] {
    scheduler.Sleep(1'000'000);
    word = 1;
    scheduler.WakeAll(word);
  });
  const uint64_t start_ns = scheduler.MonotonicNs();
  while (word.load() == 0) EXPECT_TRUE(scheduler.Wait(word, 0, start_ns + 5'000'000));
  EXPECT_LT(scheduler.MonotonicNs(), start_ns + 2'000'000);
  while (scheduler.Wait(word, 1, start_ns + 5'000'000)) {
  }
  EXPECT_GE(scheduler.MonotonicNs(), start_ns + 5'000'000);
}

TEST(SimScheduler, RunsABodyToItsEndAndReusesStacks) {
  SimScheduler scheduler(1);
  int depth = 0;
  for (int i = 0; i < 1000; ++i) {
    scheduler.Run([&] {
      scheduler.Run([&] { ++depth; });
      ++depth;
    });
  }
  EXPECT_EQ(depth, 2000);
}

TEST(SimSchedulerDeathTest, ADeadlockNamesWhoWaits) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SimScheduler scheduler(1);
        std::atomic<uint32_t> never{7};
        auto stuck = scheduler.StartThread("stuck one", [&] {
          for (;;) scheduler.Wait(never, 7, kNoDeadline);
        });
        for (;;) scheduler.Wait(never, 7, kNoDeadline);
      },
      "stuck one waits on the word at .* which is 7");
}

}  // namespace
}  // namespace cairn::io
