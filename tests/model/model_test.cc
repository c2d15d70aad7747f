// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever is done to a store, under whatever options, it shows what the reference model
// shows, holds what can be reached, and nothing else.
// Method: generated histories with adversarial weights, from a seed that follows from the commit;
// and one history under every option set.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/model/histories.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kOperations = 80'000;  // With those of the slow tests far more than a million.

TEST(ModelTest, AStoreShowsWhatTheModelShows) {
  const HistoriesResult all = RunHistories(QuickTestSeed(), kOperations, 1'500);
  std::printf("%llu model operations, %llu prefixes and %llu chunks found\n",
              static_cast<unsigned long long>(all.operations),
              static_cast<unsigned long long>(all.sums.found),
              static_cast<unsigned long long>(all.sums.chunks_found));
  RecordProperty("model_operations", std::to_string(all.operations));
  EXPECT_GE(all.operations, kOperations);
  ExpectThatMostHappened(all);
}

TEST(ModelTest, OptionsDoNotShow) {
  ASSERT_GE(OptionSets().size(), 32u);
  uint64_t operations = 0;
  for (const Profile& profile : Profiles()) {
    operations += RunEverywhere(QuickTestSeed(), profile, 200).operations;
  }
  std::printf("%llu model operations\n", static_cast<unsigned long long>(operations));
  RecordProperty("model_operations", std::to_string(operations));
  EXPECT_GE(operations, 12'000u);  // The seed is the commit's: one in ten has fewer than 20,000.
}

}  // namespace
}  // namespace cairn::testing
