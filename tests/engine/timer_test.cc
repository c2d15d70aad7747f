// SPDX-License-Identifier: Apache-2.0
//
// Property: what is asked for a time runs at it, the earliest first, and nothing runs once Stop has
// returned. Method: the clock of the simulated machine.
#include "engine/commit/timer.h"

#include <gtest/gtest.h>

#include "sim/world.h"

namespace cairn::engine {
namespace {

TEST(Timer, EarliestFirstAndNothingBehindStop) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Timer timer(machine.world());
  ASSERT_TRUE(timer.Start());
  std::vector<std::pair<int, uint64_t>> ran;
  const auto note = [&](int what) {
    return Timer::Make([&, what] {
      ran.emplace_back(what, machine.scheduler->MonotonicNs());
      return io::kNoDeadline;
    });
  };
  const uint64_t now = machine.scheduler->MonotonicNs();
  timer.At(now + 2'000, note(2));
  timer.At(now + 1'000, note(1));  // Earlier than what it sleeps for.
  timer.At(now + 9'000, note(3));
  machine.scheduler->Sleep(5'000);
  ASSERT_EQ(ran.size(), 2u);
  EXPECT_EQ(ran[0].first, 1);
  EXPECT_GE(ran[0].second, now + 1'000);
  EXPECT_EQ(ran[1].first, 2);
  EXPECT_GE(ran[1].second, now + 2'000);
  timer.Stop();
  timer.At(now, note(4));
  machine.scheduler->Sleep(50'000);
  EXPECT_EQ(ran.size(), 2u);
  timer.Stop();  // Again.
}

TEST(Timer, RunsAgainWhenTheActionSays) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Timer timer(machine.world());
  ASSERT_TRUE(timer.Start());
  std::vector<uint64_t> ran;
  const uint64_t now = machine.scheduler->MonotonicNs();
  timer.At(now + 1'000, Timer::Make([&] {
             ran.push_back(machine.scheduler->MonotonicNs());
             return ran.size() < 3 ? ran.back() + 2'000 : io::kNoDeadline;
           }));
  machine.scheduler->Sleep(50'000);
  ASSERT_EQ(ran.size(), 3u);
  EXPECT_GE(ran[1], ran[0] + 2'000);
  EXPECT_GE(ran[2], ran[1] + 2'000);
  timer.Stop();
}

}  // namespace
}  // namespace cairn::engine
