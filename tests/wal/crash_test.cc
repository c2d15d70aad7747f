// SPDX-License-Identifier: Apache-2.0
//
// Property: after a crash at any moment the log holds everything that was acknowledged durable, as
// an exact prefix of what was appended; recovering again changes nothing; the log goes on from
// there and survives the next crash too.
// Method: generated runs on a simulated disk, power cut before every operation, every subset of the
// unsynced writes (and random torn ones). A disk that lies shows that the check can fail.
#include <gtest/gtest.h>

#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "tests/wal/crash_enumeration.h"

namespace cairn::wal {
namespace {

void ExpectClean(const CrashReport& report) {
  for (const std::string& violation : report.violations) ADD_FAILURE() << violation;
}

TEST(Crash, EveryOperationOfGeneratedRuns) {
  uint64_t crashes = 0, torn_tails = 0, second_crashes = 0, segments = 0;
  for (uint64_t seed = 1; seed <= 8 && !HasFailure(); ++seed) {
    CrashPlan plan;
    plan.seed = seed;
    plan.sync_method = seed % 2 == 0 ? SyncMethod::kDurableWrite : SyncMethod::kFdatasync;
    const CrashReport report = EnumerateCrashes(plan);
    ExpectClean(report);
    crashes += report.crashes;
    torn_tails += report.torn_tails;
    second_crashes += report.second_crashes;
    segments += report.segments_used;
  }
  RecordProperty("crashes", static_cast<int>(crashes));
  EXPECT_GE(crashes, 10'000u);
  EXPECT_GE(torn_tails, 50u);
  EXPECT_GE(second_crashes, 100u);
  EXPECT_GE(segments, 24u);  // The runs went through switches and footers.
}

TEST(Crash, RecordsWrittenInPieces) {
  CrashPlan plan;
  plan.seed = 3;
  plan.steps = 8;
  plan.large_records = true;
  plan.all_subsets_up_to = 4;
  plan.random_choices = 2;
  plan.second_crash_every = 200;
  ExpectClean(EnumerateCrashes(plan));
}

// A durable acknowledgement covers earlier records of others, without waiting for them, and those
// of them that were still under way.
TEST(Crash, ASyncCoversWritesThatWereUnderWay) {
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    io::SimDiskOptions disk;  // Its syncs are faster than its writes.
    disk.write = {5'000, 500'000};
    disk.durable = {5'000, 10'000};
    io::SimWorld machine = io::MakeSimWorld(seed, disk);
    LogFixture fixture(machine.world());
    ASSERT_TRUE(machine.disk->SyncDirectory("").ok());
    fixture.OpenLog();
    auto other = machine.scheduler->StartThread("other", [&] {
      for (uint64_t i = 0; i < 60; ++i) {
        fixture.log->Request(fixture.Append(Payload(i, 5000)), /*durable=*/false);
        machine.scheduler->Sleep(10'000);
      }
    });
    for (uint64_t i = 0; i < 20 && !HasFailure(); ++i) {
      const uint64_t sequence = fixture.Append(Payload(i, 100));
      ASSERT_TRUE(fixture.log->Wait(sequence, /*durable=*/true, io::kNoDeadline).ok());
      const uint64_t durable = fixture.log->durable_sequence();
      ASSERT_GE(durable, sequence);
      io::World found = io::CrashWorld(*machine.disk, io::CrashChoice::LoseAll()).world();
      RecoveryOptions options;
      options.directory = "log";
      options.store = kTestStore;
      const Recovered recovered = RecoverLog(found, options);
      ASSERT_TRUE(recovered.status.ok()) << recovered.status.ToString();
      EXPECT_GE(recovered.log.last_sequence, durable) << "seed " << seed;
    }
    other.reset();
  }
}

TEST(Crash, ADiskThatLiesIsNoticed) {
  CrashPlan plan;
  plan.steps = 10;
  plan.drop_syncs = true;
  plan.all_subsets_up_to = 0;
  EXPECT_FALSE(EnumerateCrashes(plan).violations.empty());
}

}  // namespace
}  // namespace cairn::wal
