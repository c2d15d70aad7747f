// SPDX-License-Identifier: Apache-2.0
//
// The crash enumeration of crash_test.cc at length: more and longer runs, every subset of up to
// twelve unsynced changes, more second crashes, records in pieces.
#include <gtest/gtest.h>

#include "tests/support/test_seed.h"
#include "tests/wal/crash_enumeration.h"

namespace cairn::wal {
namespace {

// How many states were checked.
uint64_t Check(const CrashPlan& plan) {
  const CrashReport report = EnumerateCrashes(plan);
  for (const std::string& violation : report.violations) {
    ADD_FAILURE() << "seed " << plan.seed << ": " << violation;
  }
  return report.crashes;
}

TEST(CrashSlow, EverySubsetOfTwelve) {
  uint64_t states = 0;
  const uint64_t first = testing::TestSeed();
  for (uint64_t seed = first; seed < first + 12 && !::testing::Test::HasFailure(); ++seed) {
    CrashPlan plan;
    plan.seed = seed;
    plan.steps = 24;
    plan.all_subsets_up_to = 12;
    plan.random_choices = 8;
    plan.second_crash_every = 400;
    plan.sync_method = seed % 2 == 0 ? SyncMethod::kDurableWrite : SyncMethod::kFdatasync;
    states += Check(plan);
  }
  EXPECT_GE(states, 5'000U);
}

TEST(CrashSlow, ManyLongRuns) {
  uint64_t states = 0;
  const uint64_t first = testing::TestSeed();  // Longer: tools/soak log-crashes.
  for (uint64_t seed = first; seed < first + 10 && !::testing::Test::HasFailure(); ++seed) {
    CrashPlan plan;
    plan.seed = seed;
    plan.steps = 60;
    plan.all_subsets_up_to = 4;
    plan.random_choices = 2;
    plan.large_records = seed % 10 == 0;
    plan.sync_method = seed % 2 == 0 ? SyncMethod::kDurableWrite : SyncMethod::kFdatasync;
    states += Check(plan);
  }
  EXPECT_GE(states, 4'000U);
}

}  // namespace
}  // namespace cairn::wal
