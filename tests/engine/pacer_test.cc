// SPDX-License-Identifier: Apache-2.0
//
// Property: background work is held to its rate and no more, hurries where room runs out, stands
// still while it is paused, and ends when it is stopped. Method: the virtual clock.
#include "engine/space/pacer.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "base/io/sim_scheduler.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr uint64_t kRate = 1 << 20;
constexpr uint64_t kStep = 64 << 10;
constexpr uint64_t kSecond = 1'000'000'000;

TEST(HasteTest, GrowsInTheLastQuarter) {
  EXPECT_EQ(1, Haste(0, 1600));
  EXPECT_EQ(1, Haste(1200, 1600));
  EXPECT_EQ(2, Haste(1400, 1600));
  EXPECT_EQ(4, Haste(1500, 1600));
  EXPECT_EQ(400, Haste(1599, 1600));
  EXPECT_EQ(kUnlimited, Haste(1600, 1600));
  EXPECT_EQ(kUnlimited, Haste(5000, 1600));
  EXPECT_EQ(1, Haste(uint64_t{1} << 50, UINT64_MAX));
  EXPECT_EQ(1200U, HasteBegins(1600));
}

class PacerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Pacer> Make(uint64_t rate) {
    return std::make_unique<Pacer>(scheduler_, rate, [this] { return haste_; });
  }
  // Seconds that `steps` steps take.
  double Seconds(Pacer& pacer, int steps) {
    const uint64_t begin = scheduler_.MonotonicNs();
    for (int i = 0; i < steps; ++i) EXPECT_OK(pacer.Take(kStep / 2, kStep / 2));
    return static_cast<double>(scheduler_.MonotonicNs() - begin) / kSecond;
  }

  io::SimScheduler scheduler_{1};
  double haste_ = 1;
};

TEST_F(PacerTest, KeepsTheRate) {
  const auto pacer = Make(kRate);
  ASSERT_OK(pacer->Begin());
  EXPECT_NEAR(10, Seconds(*pacer, 160), 0.02);
  haste_ = 4;
  EXPECT_NEAR(2.5, Seconds(*pacer, 160), 0.02);
  haste_ = kUnlimited;
  EXPECT_LT(Seconds(*pacer, 160), 0.001);
  haste_ = 1;
  // A rest is no credit for a burst.
  scheduler_.Sleep(1000 * kSecond);
  EXPECT_NEAR(10, Seconds(*pacer, 160), 0.02);
  EXPECT_EQ(640 * kStep / 2, pacer->read_bytes());
  EXPECT_EQ(640 * kStep / 2, pacer->written_bytes());
  pacer->End();
}

TEST_F(PacerTest, WithoutARateNothingWaits) {
  const auto pacer = Make(0);
  ASSERT_OK(pacer->Begin());
  EXPECT_LT(Seconds(*pacer, 1000), 0.01);
  pacer->End();
}

TEST_F(PacerTest, HasteIsNoticedInTheMiddleOfAWait) {
  for (const bool told : {true, false}) {
    const auto pacer = Make(kRate);
    haste_ = 1;
    uint64_t took_ns = 0;
    auto worker = scheduler_.StartThread("worker", [&] {
      const uint64_t begin = scheduler_.MonotonicNs();
      EXPECT_OK(pacer->Begin());
      EXPECT_OK(pacer->Take(100 * kRate, 0));
      pacer->End();
      took_ns = scheduler_.MonotonicNs() - begin;
    });
    scheduler_.Sleep(kSecond);
    haste_ = kUnlimited;
    if (told) pacer->Reconsider();
    worker.reset();
    EXPECT_GE(took_ns, kSecond);
    EXPECT_LE(took_ns, kSecond + (told ? kSecond / 1000 : kSecond / 5));
  }
}

TEST_F(PacerTest, PausedItStandsStill) {
  const auto pacer = Make(0);
  int steps = 0;
  auto worker = scheduler_.StartThread("worker", [&] {
    EXPECT_OK(pacer->Begin());
    for (; pacer->Take(kStep, 0).ok(); ++steps) scheduler_.Sleep(kSecond / 1000);
  });
  scheduler_.Sleep(kSecond);
  EXPECT_GT(steps, 500);
  pacer->Pause();
  pacer->Pause();
  EXPECT_TRUE(pacer->paused());
  const int stood_at = steps;
  scheduler_.Sleep(kSecond);
  EXPECT_EQ(stood_at, steps);
  EXPECT_TRUE(pacer->Resume());
  scheduler_.Sleep(kSecond);
  EXPECT_EQ(stood_at, steps) << "paused twice, resumed once";
  EXPECT_TRUE(pacer->Resume());
  EXPECT_FALSE(pacer->Resume());
  scheduler_.Sleep(kSecond);
  EXPECT_GT(steps, stood_at + 500);
  pacer->Stop();
  worker.reset();
}

TEST_F(PacerTest, TwoThreadsShareTheRate) {
  const auto pacer = Make(kRate);
  const uint64_t begin = scheduler_.MonotonicNs();
  const auto work = [&] {
    EXPECT_OK(pacer->Begin());
    for (int i = 0; i < 80; ++i) EXPECT_OK(pacer->Take(kStep, 0));
    pacer->End();
  };
  auto one = scheduler_.StartThread("one", work);
  auto other = scheduler_.StartThread("other", work);
  one.reset();
  other.reset();
  EXPECT_NEAR(10, static_cast<double>(scheduler_.MonotonicNs() - begin) / kSecond, 0.1);
}

TEST_F(PacerTest, WhoWaitsForAnotherThatIsPausedStandsStill) {
  const auto pacer = Make(0);
  int steps = 0;
  auto other = scheduler_.StartThread("other", [&] {
    EXPECT_OK(pacer->Begin());
    for (; steps < 2000; ++steps) {
      EXPECT_OK(pacer->Take(kStep, 0));
      scheduler_.Sleep(kSecond / 1000);
    }
    pacer->End();
  });
  bool over = false;
  auto worker = scheduler_.StartThread("worker", [&] {
    EXPECT_OK(pacer->Begin());
    pacer->StandStill();
    other.reset();
    pacer->StandNoMore();
    EXPECT_OK(pacer->GoOn());
    over = true;
    pacer->End();
  });
  scheduler_.Sleep(kSecond);
  pacer->Pause();
  const int stood_at = steps;
  scheduler_.Sleep(10 * kSecond);
  EXPECT_EQ(stood_at, steps);
  EXPECT_FALSE(over);
  EXPECT_TRUE(pacer->Resume());
  worker.reset();
  EXPECT_TRUE(over);
  EXPECT_EQ(2000, steps);
}

TEST_F(PacerTest, StopEndsEveryWait) {
  {
    const auto pacer = Make(kRate);
    Status status;
    auto worker = scheduler_.StartThread("worker", [&] {
      EXPECT_OK(pacer->Begin());
      status = pacer->Take(1000 * kRate, 0);
    });
    scheduler_.Sleep(kSecond);
    pacer->Stop();
    worker.reset();
    EXPECT_FAILS(status, StatusCode::kCancelled);
  }
  const auto pacer = Make(kRate);
  pacer->Pause();  // Nobody works: returns at once.
  Status status;
  auto worker = scheduler_.StartThread("worker", [&] { status = pacer->Begin(); });
  scheduler_.Sleep(kSecond);
  pacer->Stop();
  worker.reset();
  EXPECT_FAILS(status, StatusCode::kCancelled);
}

}  // namespace
}  // namespace cairn::engine
