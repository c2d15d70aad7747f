// SPDX-License-Identifier: Apache-2.0
//
// As model_test.cc, with a million operations, and longer histories under every option set, from a
// seed that follows from the commit.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/model/histories.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kOperations = 1'000'000;

TEST(ModelSlowTest, AStoreShowsWhatTheModelShows) {
  const HistoriesResult all = RunHistories(TestSeed(), kOperations, 4'000);
  std::printf("%llu model operations\n", static_cast<unsigned long long>(all.operations));
  RecordProperty("model_operations", std::to_string(all.operations));
  EXPECT_GE(all.operations, kOperations);
  ExpectThatMostHappened(all);
}

TEST(ModelSlowTest, OptionsDoNotShow) {
  uint64_t operations = 0;
  for (uint64_t seed = TestSeed(); const Profile& profile : Profiles()) {
    operations += RunEverywhere(seed++, profile, 1'000).operations;
  }
  std::printf("%llu model operations\n", static_cast<unsigned long long>(operations));
  RecordProperty("model_operations", std::to_string(operations));
  EXPECT_GE(operations, 150'000u);
}

}  // namespace
}  // namespace cairn::testing
