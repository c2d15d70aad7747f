// SPDX-License-Identifier: Apache-2.0
//
// The bug: a segment of the log, or a spare one, whose file could not be removed or renamed once
// was forgotten and kept its space until the store was opened again. It is tried again.
#include <algorithm>
#include <string>

#include "tests/engine/engine_test.h"
#include "tests/support/log_fixture.h"

namespace cairn::testing {
namespace {

uint64_t LogFiles(const io::SimDisk& disk, const std::string& directory) {
  const std::vector<std::string> files = disk.Files();
  return static_cast<uint64_t>(
      std::count_if(files.begin(), files.end(), [&](const std::string& file) {
        return file.starts_with(directory) && file.ends_with(".log");
      }));
}

// Fails one operation whose path begins with `path`.
io::SimFault Once(io::SimOp op, const std::string& path) {
  return {
      .when =
          [=](const io::SimOperation& one) { return one.op == op && one.path.starts_with(path); },
      .error = EIO};
}

TEST(ASegmentThatCouldNotBeRemovedStayed, TheNextRoundGivesItBack) {
  for (const bool becomes_spare : {false, true}) {
    const io::SimWorld machine = io::MakeSimWorld(1);
    Options options = TinyOptions();
    options.spare_segments_max = becomes_spare ? 16 : options.spare_segments_min;
    options.world = std::make_shared<io::World>(machine.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(WideModel()));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    ASSERT_OK(store.PauseBackground());
    for (uint64_t at = 0; at < 400; at += 10) {
      ASSERT_OK(AppendSome(branch, WideModel(), at, 10, kSeed, Durability::kPower));
    }
    machine.disk->AddFault(
        Once(becomes_spare ? io::SimOp::kRename : io::SimOp::kRemove, "/store/log/0"));
    ASSERT_OK(store.ResumeBackground());
    EXPECT_FAILS(store.Compact(), StatusCode::kIoError);
    EXPECT_OK(store.Compact());
    machine.scheduler->Sleep(1'000'000'000);
    const StoreMetrics metrics = store.Metrics();
    EXPECT_EQ(LogFiles(*machine.disk, "store/log/"),
              metrics.log_segments + metrics.log_spare_segments);
  }
}

TEST(ASegmentThatCouldNotBeRemovedStayed, ASpareOneGoesLater) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  wal::LogFixture log(machine.world());
  log.options.spare_segments_min = log.options.spare_segments_max = 6;
  log.OpenLog();
  log.Append(wal::Payload(1, 100));
  ASSERT_OK(log.log->Close());
  log.options.spare_segments_min = log.options.spare_segments_max = 2;
  machine.disk->AddFault(Once(io::SimOp::kRemove, "log/spare"));
  log.Reopen();
  const uint64_t operations = machine.disk->operations();
  log.log->SpaceWasFreed();
  machine.scheduler->Sleep(1'000'000'000);
  EXPECT_LT(machine.disk->operations() - operations, 100u);
  log.log->SpaceWasFreed();
  machine.scheduler->Sleep(1'000'000'000);
  const wal::Log::Counters counters = log.log->counters();
  EXPECT_EQ(LogFiles(*machine.disk, "log/"), counters.segments_live + counters.segments_spare);
}

}  // namespace
}  // namespace cairn::testing
