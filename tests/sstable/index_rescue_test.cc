// SPDX-License-Identifier: Apache-2.0
//
// Property: what IndexRescue calls certain is what the index would have answered, whichever of its
// tables are missing, cut or damaged, and wherever; `shown` is what the whole tables alone show;
// and damage in one block leaves the records around it certain. Method: random puts and deletions
// over several levels, against a map, and random damage.
#include "sstable/index_rescue.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sstable/lsm_fixture.h"
#include "tests/support/test_seed.h"

namespace cairn::sstable {
namespace {

constexpr MergeShape kTiny{.table_bytes = 16 << 10, .level1_bytes = 32 << 10, .level0_tables = 3};

struct Made {
  std::shared_ptr<io::SimDisk> disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  Records truth;
  std::vector<LiveTable> live;

  explicit Made(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto index = *LsmIndex::Open({.tables = tables.context, .shape = kTiny}, {});
    for (int round = 0; round < 12; ++round) {
      for (int i = 0; i < 120; ++i) {
        const std::string key = KeyOf(random() % 900);
        if (random() % 4 == 0) {
          Delete(*index, key);
          truth[key].reset();
        } else {
          truth[key] = ValueOf(random(), 40);
          Put(*index, key, *truth[key]);
        }
      }
      FlushAll(*index);
      if (round % 4 != 3) CompactAll(*index);
    }
    live = index->live();
  }

  void Damage(std::mt19937_64& random, const LiveTable& table) {
    const std::string path = tables.Path(table.number);
    const uint64_t bytes = disk->ReadRaw(path)->size();  // It may have been cut before.
    switch (bytes == 0 ? 0 : random() % 4) {
      case 0: ASSERT_OK(disk->Remove(path)); break;
      case 1: ASSERT_OK(disk->TruncateRaw(path, random() % bytes)); break;
      case 2: ASSERT_OK(disk->FlipBit(path, random() % bytes, random() % 8)); break;
      default: {
        const uint64_t at = random() % bytes / 4096 * 4096;
        ASSERT_OK(disk->WriteRaw(path, at, std::vector<std::byte>(4096)));
      }
    }
  }
};

TEST(IndexRescue, WhatIsCertainIsTrue) {
  const uint64_t seed = testing::QuickTestSeed();
  uint64_t certain = 0, uncertain = 0;
  for (uint64_t run = 0; run < 60; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    Made made(seed + run % 6);
    std::mt19937_64 random(seed + run);
    for (uint64_t damages = 1 + random() % 2; damages > 0; --damages) {
      const LiveTable& table = made.live[random() % made.live.size()];
      if (!made.disk->ReadRaw(made.tables.Path(table.number)).ok()) continue;
      ASSERT_NO_FATAL_FAILURE(made.Damage(random, table));
    }
    ASSERT_OK_ASSIGN(const IndexRescue rescue, IndexRescue::Look(made.tables.context, made.live));
    EXPECT_EQ(rescue.whole().size() + rescue.lost().size(), made.live.size());
    ASSERT_OK_ASSIGN(
        const auto shown,
        LsmIndex::Open({.tables = made.tables.context, .shape = kTiny}, rescue.whole()));
    std::string last;
    ASSERT_OK(rescue.Walk([&](const IndexRescue::Record& record) -> Status {
      const std::string key(record.key);
      EXPECT_LT(last, key);
      last = key;
      CAIRN_ASSIGN_OR_RETURN(const auto found, shown->Get(key));
      EXPECT_EQ(found.has_value(), record.shown.has_value()) << key;
      if (found.has_value() && record.shown.has_value()) {
        EXPECT_EQ(*found, *record.shown) << key;
      }
      ++(record.certain ? certain : uncertain);
      if (!record.certain) return Status::Ok();
      const std::optional<std::string>& truth = made.truth[key];
      EXPECT_EQ(truth.has_value(), record.newest.has_value()) << key;
      if (truth.has_value() && record.newest.has_value()) {
        EXPECT_EQ(*truth, *record.newest) << key;
      }
      return Status::Ok();
    }));
  }
  EXPECT_GT(certain, 1000u);
  EXPECT_GT(uncertain, 1000u);
}

TEST(IndexRescue, ADamagedBlockLeavesTheOthers) {
  TestTables tables = TestTables::OnDisk(std::make_shared<io::SimDisk>());
  const Records records = MakeRecords(2000, 40);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  ASSERT_GE(info.data_blocks, 4u);
  auto& disk = dynamic_cast<io::SimDisk&>(*tables.files);
  ASSERT_OK(disk.FlipBit(tables.Path(1), 20'000, 1));  // In the second block.
  ASSERT_OK_ASSIGN(const IndexRescue rescue,
                   IndexRescue::Look(tables.context, std::vector<LiveTable>{{1, 1, info.bytes}}));
  ASSERT_EQ(rescue.lost().size(), 1u);
  EXPECT_FALSE(rescue.lost()[0].missing);
  uint64_t read = 0;
  ASSERT_OK(rescue.Walk([&](const IndexRescue::Record& record) {
    EXPECT_TRUE(record.certain);
    EXPECT_FALSE(record.shown.has_value());
    ++read;
    return Status::Ok();
  }));
  EXPECT_GT(read, records.size() / 2);
  EXPECT_LT(read, records.size());
}

}  // namespace
}  // namespace cairn::sstable
