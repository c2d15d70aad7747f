// SPDX-License-Identifier: Apache-2.0
//
// Property: what was written in the last 24 hours is what went into files in them, whatever the
// clock does, and closing keeps it. Method: the hours alone, and a store on the simulated clock.
#include "engine/manifest/hourly_write_counter.h"

#include "engine/manifest/manifest.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

using engine::HourlyWriteCounter;
constexpr uint64_t kHour = 3'600'000'000'000;
constexpr uint64_t kNow = 500'000 * kHour;

TEST(HourlyWriteCounter, HoursLeaveTheDayOneAfterTheOther) {
  HourlyWriteCounter hours;
  for (uint64_t i = 0; i < 100; ++i) hours.Add(kNow + i * kHour, 1000);
  const uint64_t last = kNow + 99 * kHour;
  EXPECT_EQ(25'000u, hours.LastDay(last)) << "the present hour has just begun";
  EXPECT_EQ(24'500u, hours.LastDay(last + kHour / 2));
  EXPECT_EQ(24'000u - 10'000u + 1000u, hours.LastDay(last + 10 * kHour));
  EXPECT_EQ(1000u, hours.LastDay(last + 24 * kHour));
  EXPECT_EQ(250u, hours.LastDay(last + 24 * kHour + kHour / 4 * 3));
  EXPECT_EQ(0u, hours.LastDay(last + 25 * kHour));
  EXPECT_EQ(0u, hours.LastDay(last + 1000 * kHour));
}

TEST(HourlyWriteCounter, AClockThatJumpsDoesNoLastingHarm) {
  HourlyWriteCounter hours;
  hours.Add(kNow, 1000);
  hours.Add(kNow + 10'000 * kHour, 7);
  EXPECT_EQ(7u, hours.LastDay(kNow + 10'000 * kHour));
  hours.Add(kNow + kHour, 500);
  EXPECT_LE(hours.LastDay(kNow + kHour), 1500u);
  EXPECT_GE(hours.LastDay(kNow + kHour), 500u);
  for (uint64_t i = 0; i < 50; ++i) hours.Add(kNow + i * kHour, 10);
  EXPECT_EQ(250u, hours.LastDay(kNow + 49 * kHour));
  EXPECT_EQ(0u, HourlyWriteCounter().LastDay(0));
}

TEST(HourlyWriteCounter, SurvivesEncodingAndDamage) {
  HourlyWriteCounter hours;
  for (uint64_t i = 0; i < 30; ++i) hours.Add(kNow + i * kHour, i + 1);
  const std::vector<std::byte> bytes = hours.Encode();
  EXPECT_LE(bytes.size(), 25u * 16);
  EXPECT_EQ(hours.LastDay(kNow + 29 * kHour),
            HourlyWriteCounter::Decode(bytes).LastDay(kNow + 29 * kHour));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_LE(HourlyWriteCounter::Decode(std::span(bytes).first(length)).LastDay(kNow + 29 * kHour),
              hours.LastDay(kNow + 29 * kHour));
  }
  EXPECT_TRUE(HourlyWriteCounter().Encode().empty());
}

TEST(HourlyWriteCounter, AStoreCountsWhatItWritesByDays) {
  const auto world = TestWorld::Make("simulated");
  io::Scheduler& scheduler = *world->world().scheduler;
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  const uint64_t made = store.Metrics().written_bytes_day;
  EXPECT_GT(made, 0u) << "a MANIFEST and what the log has of the model";
  const auto write = [&] {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    ASSERT_OK(AppendSome(branch, model, 0, 24));
    ASSERT_OK(store.Compact());
  };
  uint64_t before = made;
  for (int hour = 0; hour < 30; ++hour) {
    write();
    const StoreMetrics metrics = store.Metrics();
    if (hour < 23) {
      EXPECT_GE(metrics.written_bytes_day, before + 2 * 24 * model.token_bytes())
          << "into the log, and into a table";
    }
    before = metrics.written_bytes_day;
    scheduler.Sleep(kHour);
  }
  const StoreMetrics all = store.Metrics();
  const uint64_t ever = all.log_bytes_written + all.log_bytes_prewritten + all.table_bytes_written;
  EXPECT_LT(all.written_bytes_day, ever);
  EXPECT_NEAR(static_cast<double>(all.written_bytes_day), static_cast<double>(ever) * 24 / 30,
              static_cast<double>(ever) / 20);

  // Kept over closing, and shown to who only reads.
  ASSERT_OK(store.Close());
  Options read = world->options();
  read.read_only = true;
  read.create_if_missing = false;
  ASSERT_OK_ASSIGN(Store reader, world->Open(read));
  constexpr uint64_t kRounding = 1;  // The hour that is leaving is rounded at each opening.
  EXPECT_GE(reader.Metrics().written_bytes_day + kRounding, all.written_bytes_day);
  ASSERT_OK(reader.Close());
  ASSERT_OK_ASSIGN(store, world->Open());
  EXPECT_GE(store.Metrics().written_bytes_day + 2 * kRounding, all.written_bytes_day);
  scheduler.Sleep(26 * kHour);
  EXPECT_EQ(0u, store.Metrics().written_bytes_day);
  write();
  EXPECT_GE(store.Metrics().written_bytes_day, 24 * model.token_bytes());
  // A copy starts its own count.
  ASSERT_OK(store.Checkpoint("/copy"));
  ASSERT_OK_ASSIGN(const engine::Manifest copy,
                   engine::ReadManifest(*world->world().files, "/copy"));
  EXPECT_EQ(0u, copy.written.LastDay(scheduler.WallNs()));
}

}  // namespace
}  // namespace cairn::testing
