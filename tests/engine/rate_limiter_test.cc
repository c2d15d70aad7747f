// SPDX-License-Identifier: Apache-2.0
//
// Property: background work is held to its rate and no more, hurries where room runs out, stands
// still while it is paused, and ends when it is stopped. Method: the virtual clock.
#include "engine/background/rate_limiter.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "sim/scheduler.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr uint64_t kRate = 1 << 20;
constexpr uint64_t kStep = 64 << 10;
constexpr uint64_t kSecond = 1'000'000'000;

TEST(UrgencyTest, GrowsInTheLastQuarter) {
  EXPECT_EQ(1, Urgency(0, 1600));
  EXPECT_EQ(1, Urgency(1200, 1600));
  EXPECT_EQ(2, Urgency(1400, 1600));
  EXPECT_EQ(4, Urgency(1500, 1600));
  EXPECT_EQ(400, Urgency(1599, 1600));
  EXPECT_EQ(kUnlimited, Urgency(1600, 1600));
  EXPECT_EQ(kUnlimited, Urgency(5000, 1600));
  EXPECT_EQ(1, Urgency(uint64_t{1} << 50, UINT64_MAX));
  EXPECT_EQ(1200U, UrgencyBegins(1600));
}

class RateLimiterTest : public ::testing::Test {
 protected:
  std::unique_ptr<RateLimiter> Make(uint64_t rate) {
    return std::make_unique<RateLimiter>(scheduler_, rate, [this] { return urgency_; });
  }
  // Seconds that `steps` steps take.
  double Seconds(RateLimiter& rate_limiter, int steps) {
    const uint64_t begin = scheduler_.MonotonicNs();
    for (int i = 0; i < steps; ++i) EXPECT_OK(rate_limiter.Take(kStep / 2, kStep / 2));
    return static_cast<double>(scheduler_.MonotonicNs() - begin) / kSecond;
  }

  io::SimScheduler scheduler_{1};
  double urgency_ = 1;
};

TEST_F(RateLimiterTest, KeepsTheRate) {
  const auto rate_limiter = Make(kRate);
  ASSERT_OK(rate_limiter->Begin());
  EXPECT_NEAR(10, Seconds(*rate_limiter, 160), 0.02);
  urgency_ = 4;
  EXPECT_NEAR(2.5, Seconds(*rate_limiter, 160), 0.02);
  urgency_ = kUnlimited;
  EXPECT_LT(Seconds(*rate_limiter, 160), 0.001);
  urgency_ = 1;
  // A rest is no credit for a burst.
  scheduler_.Sleep(1000 * kSecond);
  EXPECT_NEAR(10, Seconds(*rate_limiter, 160), 0.02);
  EXPECT_EQ(640 * kStep / 2, rate_limiter->read_bytes());
  EXPECT_EQ(640 * kStep / 2, rate_limiter->written_bytes());
  rate_limiter->End();
}

TEST_F(RateLimiterTest, WithoutARateNothingWaits) {
  const auto rate_limiter = Make(0);
  ASSERT_OK(rate_limiter->Begin());
  EXPECT_LT(Seconds(*rate_limiter, 1000), 0.01);
  rate_limiter->End();
}

TEST_F(RateLimiterTest, UrgencyIsNoticedInTheMiddleOfAWait) {
  for (const bool told : {true, false}) {
    const auto rate_limiter = Make(kRate);
    urgency_ = 1;
    uint64_t took_ns = 0;
    auto worker = scheduler_.StartThread("worker", [&] {
      const uint64_t begin = scheduler_.MonotonicNs();
      EXPECT_OK(rate_limiter->Begin());
      EXPECT_OK(rate_limiter->Take(100 * kRate, 0));
      rate_limiter->End();
      took_ns = scheduler_.MonotonicNs() - begin;
    });
    scheduler_.Sleep(kSecond);
    urgency_ = kUnlimited;
    if (told) rate_limiter->Reconsider();
    worker.reset();
    EXPECT_GE(took_ns, kSecond);
    EXPECT_LE(took_ns, kSecond + (told ? kSecond / 1000 : kSecond / 5));
  }
}

TEST_F(RateLimiterTest, PausedItWaits) {
  const auto rate_limiter = Make(0);
  int steps = 0;
  auto worker = scheduler_.StartThread("worker", [&] {
    EXPECT_OK(rate_limiter->Begin());
    for (; rate_limiter->Take(kStep, 0).ok(); ++steps) scheduler_.Sleep(kSecond / 1000);
  });
  scheduler_.Sleep(kSecond);
  EXPECT_GT(steps, 500);
  rate_limiter->Pause();
  rate_limiter->Pause();
  EXPECT_TRUE(rate_limiter->paused());
  const int stood_at = steps;
  scheduler_.Sleep(kSecond);
  EXPECT_EQ(stood_at, steps);
  EXPECT_TRUE(rate_limiter->Resume());
  scheduler_.Sleep(kSecond);
  EXPECT_EQ(stood_at, steps) << "paused twice, resumed once";
  EXPECT_TRUE(rate_limiter->Resume());
  EXPECT_FALSE(rate_limiter->Resume());
  scheduler_.Sleep(kSecond);
  EXPECT_GT(steps, stood_at + 500);
  rate_limiter->Stop();
  worker.reset();
}

TEST_F(RateLimiterTest, TwoThreadsShareTheRate) {
  const auto rate_limiter = Make(kRate);
  const uint64_t begin = scheduler_.MonotonicNs();
  const auto work = [&] {
    EXPECT_OK(rate_limiter->Begin());
    for (int i = 0; i < 80; ++i) EXPECT_OK(rate_limiter->Take(kStep, 0));
    rate_limiter->End();
  };
  auto one = scheduler_.StartThread("one", work);
  auto other = scheduler_.StartThread("other", work);
  one.reset();
  other.reset();
  EXPECT_NEAR(10, static_cast<double>(scheduler_.MonotonicNs() - begin) / kSecond, 0.1);
}

TEST_F(RateLimiterTest, WhoWaitsForAnotherThatIsPausedIsIdle) {
  const auto rate_limiter = Make(0);
  int steps = 0;
  auto other = scheduler_.StartThread("other", [&] {
    EXPECT_OK(rate_limiter->Begin());
    for (; steps < 2000; ++steps) {
      EXPECT_OK(rate_limiter->Take(kStep, 0));
      scheduler_.Sleep(kSecond / 1000);
    }
    rate_limiter->End();
  });
  bool over = false;
  auto worker = scheduler_.StartThread("worker", [&] {
    EXPECT_OK(rate_limiter->Begin());
    rate_limiter->EnterIdle();
    other.reset();
    rate_limiter->LeaveIdle();
    EXPECT_OK(rate_limiter->GoOn());
    over = true;
    rate_limiter->End();
  });
  scheduler_.Sleep(kSecond);
  rate_limiter->Pause();
  const int stood_at = steps;
  scheduler_.Sleep(10 * kSecond);
  EXPECT_EQ(stood_at, steps);
  EXPECT_FALSE(over);
  EXPECT_TRUE(rate_limiter->Resume());
  worker.reset();
  EXPECT_TRUE(over);
  EXPECT_EQ(2000, steps);
}

TEST_F(RateLimiterTest, StopEndsEveryWait) {
  {
    const auto rate_limiter = Make(kRate);
    Status status;
    auto worker = scheduler_.StartThread("worker", [&] {
      EXPECT_OK(rate_limiter->Begin());
      status = rate_limiter->Take(1000 * kRate, 0);
    });
    scheduler_.Sleep(kSecond);
    rate_limiter->Stop();
    worker.reset();
    EXPECT_FAILS(status, StatusCode::kCancelled);
  }
  const auto rate_limiter = Make(kRate);
  rate_limiter->Pause();  // Nobody works: returns at once.
  Status status;
  auto worker = scheduler_.StartThread("worker", [&] { status = rate_limiter->Begin(); });
  scheduler_.Sleep(kSecond);
  rate_limiter->Stop();
  worker.reset();
  EXPECT_FAILS(status, StatusCode::kCancelled);
}

}  // namespace
}  // namespace cairn::engine
