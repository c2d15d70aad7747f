// SPDX-License-Identifier: Apache-2.0
//
// The crash enumeration of crash_test.cc at length: more and longer runs, every subset of up to
// twelve unsynced changes, more second crashes, records in pieces.
#include <gtest/gtest.h>

#include "tests/wal/crash_enumeration.h"

namespace cairn::wal {
namespace {

TEST(CrashSlow, EverySubsetOfTwelve) {
  for (uint64_t seed = 100; seed < 112 && !::testing::Test::HasFailure(); ++seed) {
    CrashPlan plan;
    plan.seed = seed;
    plan.steps = 24;
    plan.all_subsets_up_to = 12;
    plan.random_choices = 8;
    plan.second_crash_every = 400;
    plan.sync_method = seed % 2 == 0 ? SyncMethod::kDurableWrite : SyncMethod::kFdatasync;
    for (const std::string& violation : EnumerateCrashes(plan).violations) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST(CrashSlow, ManyLongRuns) {
  for (uint64_t seed = 1000; seed < 1200 && !::testing::Test::HasFailure(); ++seed) {
    CrashPlan plan;
    plan.seed = seed;
    plan.steps = 60;
    plan.all_subsets_up_to = 4;
    plan.random_choices = 2;
    plan.large_records = seed % 10 == 0;
    plan.sync_method = seed % 2 == 0 ? SyncMethod::kDurableWrite : SyncMethod::kFdatasync;
    for (const std::string& violation : EnumerateCrashes(plan).violations) {
      ADD_FAILURE() << violation;
    }
  }
}

}  // namespace
}  // namespace cairn::wal
