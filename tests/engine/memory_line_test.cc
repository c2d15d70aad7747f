// SPDX-License-Identifier: Apache-2.0
//
// Property: never is more taken than there is, except by a single caller; the first to come is
// served first; and a caller that has given up blocks no other. Method: simulated threads in drawn
// orders.
#include "engine/config/memory_line.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sim/scheduler.h"
#include "tests/support/status.h"

namespace cairn::engine {
namespace {

const std::function<Status()> kWaits = [] { return Status::Ok(); };
constexpr uint64_t kMs = 1'000'000;

TEST(MemoryLineTest, TakesNoMoreThanThereIs) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    io::SimScheduler scheduler(seed);
    MemoryBudget budget(1000);
    MemoryLine line(scheduler, 100, &budget);
    uint64_t taken = 0, taken_max = 0, alone = 0, done = 0;
    std::vector<std::unique_ptr<io::Thread>> threads;
    for (uint64_t i = 0; i < 30; ++i) {
      const uint64_t bytes = i % 7 == 0 ? 300 : 10 + 3 * i;
      threads.push_back(scheduler.StartThread("takes", [&, bytes] {
        ASSERT_OK_ASSIGN(const MemoryLine::Share share, line.Take(bytes, kWaits));
        taken += bytes;
        if (taken > 100) {
          EXPECT_EQ(taken, bytes) << "alone";
          ++alone;
        }
        taken_max = std::max(taken_max, taken);
        EXPECT_EQ(budget.left(), 1000 - taken);
        scheduler.Sleep(kMs);
        taken -= bytes;
        ++done;
      }));
    }
    threads.clear();
    EXPECT_EQ(done, 30U);
    EXPECT_GT(taken_max, 80U) << "several at once";
    EXPECT_EQ(alone, 5U);
    EXPECT_EQ(budget.left(), 1000U);
  }
}

TEST(MemoryLineTest, InTheOrderInWhichTheyCame) {
  io::SimScheduler scheduler(1);
  MemoryLine line(scheduler, 100, nullptr);
  std::vector<int> order;
  std::vector<std::unique_ptr<io::Thread>> threads;
  ASSERT_OK_ASSIGN(auto first, line.Take(60, kWaits));
  for (int i = 0; i < 4; ++i) {
    // The second is small enough for what is left, and is not let past the first all the same.
    threads.push_back(scheduler.StartThread("takes", [&, i] {
      ASSERT_OK_ASSIGN(const MemoryLine::Share share, line.Take(i == 0 ? 90 : 30, kWaits));
      order.push_back(i);
      scheduler.Sleep(kMs);
    }));
    scheduler.Sleep(kMs);
  }
  EXPECT_TRUE(order.empty());
  first = {};
  threads.clear();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(MemoryLineTest, WhoGoesAwayKeepsNobody) {
  io::SimScheduler scheduler(1);
  MemoryLine line(scheduler, 100, nullptr);
  ASSERT_OK_ASSIGN(auto first, line.Take(60, kWaits));
  Status left;
  bool got = false, cancelled = false;
  auto goes = scheduler.StartThread("goes", [&] {
    left = line.Take(90,
                     [&] {
                       return cancelled ? Status(StatusCode::kCancelled, "not any more")
                                        : Status::Ok();
                     })
               .status();
  });
  scheduler.Sleep(kMs);
  auto waits = scheduler.StartThread("waits", [&] { got = line.Take(40, kWaits).ok(); });
  scheduler.Sleep(50 * kMs);
  EXPECT_FALSE(got);
  cancelled = true;
  scheduler.Sleep(50 * kMs);
  EXPECT_FAILS(left, StatusCode::kCancelled, "not any more");
  EXPECT_TRUE(got) << "beside the first";
}

}  // namespace
}  // namespace cairn::engine
