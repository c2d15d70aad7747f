// SPDX-License-Identifier: Apache-2.0
//
// Property: every job runs exactly once, on any thread, and when Run returned no job runs any more;
// an error is returned. Method: no helpers, real ones, and ones that have no thread to run on.
#include "base/io/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "tests/support/status.h"

namespace cairn::io {
namespace {

class ParallelForTest : public ::testing::TestWithParam<size_t> {
 protected:
  io::World world_ = io::MakeMemoryWorld();
  // Before the threads that use them.
  std::atomic<int> held_{0};
  io::Event go_on_{*world_.scheduler};
  io::Executor executor_{*world_.scheduler, "help", 3};
  ParallelFor parallel_for_{*world_.scheduler, &executor_, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Helpers, ParallelForTest, ::testing::Values(0, 1, 8));

TEST_P(ParallelForTest, EveryJobRunsOnce) {
  for (size_t count = 0; count < 200; ++count) {
    std::vector<std::atomic<int>> runs(count);
    int own = 0;
    ASSERT_OK(parallel_for_.Run([&] { return ++own, Status::Ok(); }, count,
                                [&](size_t i) { return ++runs[i], Status::Ok(); }));
    EXPECT_EQ(1, own);
    for (const auto& run : runs) EXPECT_EQ(1, run.load());
  }
}

TEST_P(ParallelForTest, ErrorsAreTold) {
  const auto fine = [](size_t) { return Status::Ok(); };
  const auto nothing = [] { return Status::Ok(); };
  const Status bad(StatusCode::kCorruption, "bad");
  EXPECT_FAILS(parallel_for_.Run([&] { return bad; }, 100, fine), StatusCode::kCorruption, "bad");
  EXPECT_FAILS(
      parallel_for_.Run(nothing, 100, [&](size_t i) { return i == 70 ? bad : Status::Ok(); }),
      StatusCode::kCorruption, "bad");
  EXPECT_FAILS(parallel_for_.Run([]() -> Status { throw std::bad_alloc(); }, 100, fine),
               StatusCode::kOutOfMemory);
  EXPECT_FAILS(parallel_for_.Run(nothing, 100, [](size_t) -> Status { throw std::bad_alloc(); }),
               StatusCode::kOutOfMemory);
  EXPECT_OK(parallel_for_.Run(nothing, 100, fine));
}

TEST_P(ParallelForTest, HelpersWithoutAThreadAreNotWaitedFor) {
  for (int i = 0; i < 3; ++i) {
    executor_.Post([this] {
      ++held_;
      go_on_.Wait();
    });
  }
  int sum = 0;
  for (int round = 0; round < 100; ++round) {
    ASSERT_OK(parallel_for_.Run([] { return Status::Ok(); }, 10,
                                [&](size_t) { return ++sum, Status::Ok(); }));
  }
  EXPECT_EQ(1000, sum) << "all on this thread";
  while (held_.load() != 3) world_.scheduler->Sleep(100'000);
  go_on_.Set();
}

}  // namespace
}  // namespace cairn::io
