// SPDX-License-Identifier: Apache-2.0
//
// Property: data is let through at the rate at which the log is given back, the slower the nearer
// its limit is, and not at all from there on, unless nobody gives back. Method: the virtual clock.
#include "engine/background/log_gate.h"

#include <gtest/gtest.h>

#include "engine/config/constants.h"
#include "sim/scheduler.h"

namespace cairn::engine {
namespace {

constexpr uint64_t kLimit = 1600;
constexpr uint64_t kSecond = 1'000'000'000;

class LogGateTest : public ::testing::Test {
 protected:
  LogGateTest() { gate_.SetLimit(kLimit); }

  // As often as it takes for the measured rate to count alone.
  void GiveBackAt(uint64_t bytes_per_second, uint64_t live_bytes) {
    for (int i = 0; i < 60; ++i) {
      gate_.BeginReclaim();
      scheduler_.Sleep(kSecond);
      gate_.GaveBack(bytes_per_second, live_bytes);
    }
  }
  // Bytes a second that get through while the log has so much.
  double Rate(uint64_t live_bytes, uint64_t bytes_each) {
    const uint64_t begin_ns = scheduler_.MonotonicNs();
    constexpr int kTimes = 100;
    for (int i = 0; i < kTimes; ++i) gate_.Slow(live_bytes, bytes_each, io::kNoDeadline);
    const uint64_t took_ns = scheduler_.MonotonicNs() - begin_ns;
    return static_cast<double>(kTimes * bytes_each) * kSecond / static_cast<double>(took_ns);
  }

  io::SimScheduler scheduler_{1};
  LogGate gate_{scheduler_};
};

TEST_F(LogGateTest, HoldsAtTheLimitAndSlowsInTheLastQuarter) {
  EXPECT_FALSE(gate_.Slows(1200));
  EXPECT_TRUE(gate_.Slows(1201));
  EXPECT_TRUE(gate_.Slows(1599));
  EXPECT_FALSE(gate_.Holds(1599, 0));
  EXPECT_TRUE(gate_.Holds(1600, 0));
  EXPECT_TRUE(gate_.Holds(1500, 100));
  EXPECT_FALSE(gate_.Holds(1500, 99));
  EXPECT_FALSE(gate_.Slows(1600)) << "it is held";
  gate_.SetLimit(3200);
  EXPECT_FALSE(gate_.Slows(1600));
  EXPECT_FALSE(gate_.Holds(3199, 0));
  EXPECT_TRUE(gate_.Holds(3200, 0));
}

TEST_F(LogGateTest, LetsThroughWhatIsGivenBack) {
  GiveBackAt(1 << 20, 1300);
  EXPECT_NEAR(Rate(1400, 16 << 10), 1 << 20, 1 << 15);
  EXPECT_NEAR(Rate(1300, 16 << 10), 3 << 20, 1 << 17);
  EXPECT_NEAR(Rate(1500, 16 << 10), (1 << 20) / 3.0, 1 << 14);
  // Smaller appends wait once for several of them, and reach the same rate.
  EXPECT_NEAR(Rate(1400, 100), 1 << 20, 1 << 17);
  GiveBackAt(4 << 20, 1300);
  EXPECT_NEAR(Rate(1400, 64 << 10), 4 << 20, 1 << 17);
}

TEST_F(LogGateTest, NoWaitIsLongerThanItMustBe) {
  GiveBackAt(1, 1300);
  EXPECT_LE(gate_.Slow(1599, 1 << 20, io::kNoDeadline), kSlowWaitNsMax);
  const uint64_t now_ns = scheduler_.MonotonicNs();
  EXPECT_LE(gate_.Slow(1599, 1 << 20, now_ns + 1000), 1000U) << "its deadline";
  // Debts are forgotten once something was given back.
  gate_.GaveBack(100, 1300);
  EXPECT_EQ(gate_.Slow(1201, 1, io::kNoDeadline), 0U);
}

TEST_F(LogGateTest, HoldsNothingWhileNobodyGivesBack) {
  EXPECT_TRUE(gate_.Holds(5000, 0));
  const uint32_t seen = gate_.word();
  gate_.Open();
  EXPECT_NE(gate_.word(), seen) << "who is held looks again";
  EXPECT_FALSE(gate_.Holds(5000, 0));
  EXPECT_FALSE(gate_.Slows(1500));
  // Data that came meanwhile stays; new data may take half of what is given back.
  gate_.BeginReclaim();
  scheduler_.Sleep(kSecond);
  gate_.GaveBack(400, 5000);
  EXPECT_FALSE(gate_.Holds(5200, 0));
  EXPECT_TRUE(gate_.Holds(5201, 0));
  gate_.SetLimit(kLimit);
  EXPECT_TRUE(gate_.Holds(5201, 0));
  EXPECT_FALSE(gate_.Holds(5200, 0));
  gate_.GaveBack(3600, 1000);
  EXPECT_TRUE(gate_.Holds(2801, 0)) << "half of a large step is no more than the limit again";
  EXPECT_FALSE(gate_.Holds(kLimit - 1, 0));
  gate_.GaveBack(400, 1000);
  EXPECT_TRUE(gate_.Holds(kLimit, 0));
  gate_.Open();
  EXPECT_FALSE(gate_.Holds(kLimit, 0));
  gate_.Shut();
  EXPECT_TRUE(gate_.Holds(kLimit, 0));
  gate_.End();
  gate_.Shut();
  gate_.GaveBack(400, 5000);
  EXPECT_FALSE(gate_.Holds(UINT64_MAX, 0)) << "nobody will give back";
}

TEST_F(LogGateTest, AnEpisodeLastsUntilTheLogIsShort) {
  EXPECT_TRUE(gate_.BeginsEpisode());
  EXPECT_FALSE(gate_.BeginsEpisode());
  gate_.GaveBack(100, 1300);
  EXPECT_FALSE(gate_.BeginsEpisode());
  gate_.GaveBack(100, 1200);
  EXPECT_TRUE(gate_.BeginsEpisode());
}

TEST_F(LogGateTest, AwaitHasADeadline) {
  EXPECT_FALSE(gate_.Await(gate_.word(), scheduler_.MonotonicNs() + 1000));
  const uint32_t seen = gate_.word();
  gate_.Wake();
  EXPECT_TRUE(gate_.Await(seen, io::kNoDeadline));
}

}  // namespace
}  // namespace cairn::engine
