// SPDX-License-Identifier: Apache-2.0
//
// Property: an executor runs every job once, on no more threads than allowed, and ends clean; an
// event and a latch wake all who wait; a turn has one holder. Method: the same assertions on real
// threads and on fibers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/io/executor.h"
#include "base/io/real_scheduler.h"
#include "sim/scheduler.h"

namespace cairn::io {
namespace {

class IoExecutor : public ::testing::TestWithParam<std::string> {
 protected:
  IoExecutor() {
    if (GetParam() == "real") {
      scheduler_ = std::make_unique<RealScheduler>();
    } else {
      scheduler_ = std::make_unique<SimScheduler>(3);
    }
  }
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_P(IoExecutor, RunsEveryJobOnce) {
  constexpr int kJobs = 1000;
  std::vector<std::atomic<int>> runs(kJobs);
  {
    Executor executor(*scheduler_, "test", 3);
    for (auto& run : runs) executor.Post([&run] { ++run; });
  }
  for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
}

TEST_P(IoExecutor, RunsJobsOfJobsBeforeItEnds) {
  std::atomic<int> runs{0};
  {
    std::function<void(int)> post;
    Executor executor(*scheduler_, "test", 2);
    post = [&](int depth) {
      executor.Post([&, depth] {
        ++runs;
        scheduler_->Sleep(10'000);
        if (depth > 0) {
          post(depth - 1);
          post(depth - 1);
        }
      });
    };
    post(6);
  }
  EXPECT_EQ(runs.load(), 127);
}

TEST_P(IoExecutor, NeverRunsMoreJobsAtOnceThanThreads) {
  std::atomic<int> now{0}, most{0};
  Latch done(*scheduler_, 40);
  Latch four_at_once(*scheduler_, 4);  // A busy machine would not bring this about on its own.
  Executor executor(*scheduler_, "test", 4);
  for (int i = 0; i < 40; ++i) {
    executor.Post([&, i] {
      const int mine = ++now;
      int seen = most.load();
      while (seen < mine && !most.compare_exchange_weak(seen, mine)) {
      }
      if (i < 4) {
        four_at_once.CountDown();
        EXPECT_TRUE(four_at_once.Wait());
      }
      scheduler_->Sleep(1'000'000);
      --now;
      done.CountDown();
    });
  }
  EXPECT_TRUE(done.Wait());
  EXPECT_EQ(most.load(), 4);
}

TEST_P(IoExecutor, IdleThreadsAreUsedAgain) {
  Executor executor(*scheduler_, "test", 1);
  for (int i = 0; i < 100; ++i) {
    Event event(*scheduler_);
    executor.Post([&] { event.Set(); });
    EXPECT_TRUE(event.Wait());
  }
}

TEST_P(IoExecutor, AnEventWakesAllWhoWait) {
  Event event(*scheduler_);
  std::atomic<int> woken{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int i = 0; i < 5; ++i) {
    threads.push_back(scheduler_->StartThread("waiter", [&] {
      if (event.Wait()) ++woken;
    }));
  }
  scheduler_->Sleep(1'000'000);
  EXPECT_EQ(woken.load(), 0);
  event.Set();
  event.Set();
  threads.clear();
  EXPECT_EQ(woken.load(), 5);
  EXPECT_TRUE(event.is_set());
}

TEST_P(IoExecutor, WaitingEndsAtTheDeadline) {
  Event event(*scheduler_);
  Latch latch(*scheduler_, 1);
  const uint64_t deadline_ns = scheduler_->MonotonicNs() + 3'000'000;
  EXPECT_FALSE(event.Wait(deadline_ns));
  EXPECT_FALSE(latch.Wait(deadline_ns));
  EXPECT_GE(scheduler_->MonotonicNs(), deadline_ns);
  EXPECT_TRUE(Latch(*scheduler_, 0).Wait(0));
}

// The holder may sleep: other threads that want the turn wait without keeping a thread from
// running.
TEST_P(IoExecutor, ATurnIsOneAtATimeAcrossWaits) {
  Turn turn(*scheduler_);
  int inside = 0, most = 0, turns = 0;  // Guarded by the turn.
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < 4; ++i) {
      threads.push_back(scheduler_->StartThread("turn", [&] {
        for (int k = 0; k < 5; ++k) {
          const Turn::Holder holder(&turn);
          most = std::max(most, ++inside);
          scheduler_->Sleep(100'000);
          --inside;
          ++turns;
        }
      }));
    }
  }
  EXPECT_EQ(1, most);
  EXPECT_EQ(20, turns);
}

INSTANTIATE_TEST_SUITE_P(Schedulers, IoExecutor, ::testing::Values("real", "simulated"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace cairn::io
