// SPDX-License-Identifier: Apache-2.0
//
// Property: merged sources look like one map into which the sources were written from the oldest to
// the newest.
#include "sstable/merging_iterator.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

using Tombstones = MergingIterator::Tombstones;

MergingIterator MergeOf(std::vector<Records> newest_first, Tombstones tombstones,
                        std::string end = {}) {
  std::vector<std::unique_ptr<RecordIterator>> sources;
  for (Records& records : newest_first) sources.push_back(IterateRecords(std::move(records)));
  return MergingIterator(std::move(sources), tombstones, std::move(end));
}

TEST(MergingIterator, TheNewestWins) {
  const std::vector<Records> sources{{{"b", "new"}, {"c", std::nullopt}},
                                     {{"a", std::nullopt}, {"b", "old"}, {"c", "old"}},
                                     {{"a", "oldest"}, {"d", "only"}}};
  MergingIterator all = MergeOf(sources, Tombstones::kShow);
  const RecordList shown{{"a", std::nullopt}, {"b", "new"}, {"c", std::nullopt}, {"d", "only"}};
  EXPECT_EQ(Walk(all), shown);
  MergingIterator live = MergeOf(sources, Tombstones::kHide);
  const RecordList hidden{{"b", "new"}, {"d", "only"}};
  EXPECT_EQ(Walk(live), hidden);
  MergingIterator none = MergeOf({}, Tombstones::kHide);
  EXPECT_TRUE(Walk(none).empty());
  MergingIterator empty = MergeOf({{}, {}}, Tombstones::kShow);
  EXPECT_TRUE(Walk(empty).empty());
  EXPECT_OK(empty.status());
}

TEST(MergingIterator, RandomSources) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 200; ++round) {
    std::vector<Records> sources(random() % 6 + 1);
    Records model;
    for (size_t i = sources.size(); i-- > 0;) {
      for (uint64_t n = random() % 40; n > 0; --n) {
        const std::string key = KeyOf(random() % 50);
        std::optional<std::string> value;
        if (random() % 3 != 0) value = ValueOf(random(), 4);
        sources[i][key] = value;
        model[key] = value;
      }
    }
    const std::string from = KeyOf(random() % 50);
    const std::string end = random() % 2 == 0 ? "" : KeyOf(random() % 50);
    Records range(model.lower_bound(from), model.end());
    if (!end.empty()) range.erase(range.lower_bound(end), range.end());
    MergingIterator all = MergeOf(sources, Tombstones::kShow, end);
    EXPECT_EQ(Walk(all, from), ListOf(range));
    MergingIterator live = MergeOf(sources, Tombstones::kHide, end);
    EXPECT_EQ(Walk(live, from), LiveOf(range));
    EXPECT_EQ(Walk(live, from), LiveOf(range));  // A second Seek.
  }
}

TEST(MergingIterator, CountsWhatItHides) {
  Records records = MakeRecords(10, 4, 0, 1);
  for (uint64_t i = 2; i < 7; ++i) records[KeyOf(i)] = std::nullopt;
  MergingIterator live = MergeOf({records, MakeRecords(10, 4, 0, 1)}, Tombstones::kHide);
  live.Seek(KeyOf(2));
  EXPECT_EQ(live.key(), KeyOf(7));
  EXPECT_EQ(live.hidden(), 5u);
  EXPECT_EQ(live.last_hidden(), KeyOf(6));
  live.Next();
  EXPECT_EQ(live.hidden(), 0u);
  // None behind the end is walked.
  MergingIterator bounded = MergeOf({records}, Tombstones::kHide, KeyOf(4));
  bounded.Seek(KeyOf(2));
  EXPECT_FALSE(bounded.valid());
  EXPECT_EQ(bounded.hidden(), 2u);
  EXPECT_EQ(bounded.last_hidden(), KeyOf(3));
}

TEST(MergingIterator, AnErrorEndsIt) {
  std::vector<std::unique_ptr<RecordIterator>> sources;
  sources.push_back(
      IterateRecords({{"a", "1"}, {"b", "2"}}, Status(StatusCode::kCorruption, "broken behind b")));
  sources.push_back(IterateRecords({{"a", "x"}, {"c", "3"}}));
  MergingIterator merged(std::move(sources), Tombstones::kHide);
  const RecordList before{{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(Walk(merged), before);  // "c" might be deleted by what cannot be read.
  EXPECT_FAILS(merged.status(), StatusCode::kCorruption, "broken");
  merged.Seek("c");
  EXPECT_FALSE(merged.valid());
  EXPECT_FAILS(merged.status(), StatusCode::kCorruption, "broken");
}

TEST(LevelIterator, WalksTablesInOrder) {
  TestTables tables = TestTables::InMemory();
  auto list = std::make_shared<TableList>();
  Records all;
  for (uint64_t t = 0; t < 4; ++t) {
    Records records;
    for (uint64_t i = 0; i < 50; ++i) records[KeyOf(t * 1000 + i)] = ValueOf(i, 10);
    all.insert(records.begin(), records.end());
    ASSERT_OK(WriteTable(tables.context, t + 1, records));
    ASSERT_OK_ASSIGN(auto table, IndexTable::Open(tables.context, t + 1));
    list->push_back(std::move(table));
  }
  for (const auto access : {LevelIterator::Access::kScan, LevelIterator::Access::kMerge}) {
    LevelIterator level(list, access, {});
    EXPECT_FALSE(level.valid());
    EXPECT_OK(level.status());
    EXPECT_EQ(Walk(level), ListOf(all));
    for (const uint64_t from : {0, 49, 50, 999, 1000, 1049, 1050, 3049, 3050}) {
      const Records rest(all.lower_bound(KeyOf(from)), all.end());
      EXPECT_EQ(Walk(level, KeyOf(from)), ListOf(rest)) << from;
    }
  }
  EXPECT_EQ(FirstTableNotBefore(*list, ""), 0u);
  EXPECT_EQ(FirstTableNotBefore(*list, KeyOf(49)), 0u);
  EXPECT_EQ(FirstTableNotBefore(*list, KeyOf(50)), 1u);
  EXPECT_EQ(FirstTableNotBefore(*list, KeyOf(9999)), 4u);
}

}  // namespace
}  // namespace cairn::sstable
