// SPDX-License-Identifier: Apache-2.0
//
// Property: a plan takes everything that must go together and no more, and carrying plans out comes
// to an end with every level in shape.
#include "sstable/merge_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

constexpr MergeShape kShape{.table_bytes = 1 << 20, .level1_bytes = 4 << 20, .level0_tables = 4};

// Tables as numbers only.
class Shape {
 public:
  Shape& Add(size_t level, uint64_t from, uint64_t to, uint64_t bytes = 1 << 20,
             uint64_t tombstones = 0) {
    TableInfo& table = tables_.emplace_back();
    table.number = tables_.size();
    table.bytes = bytes;
    table.records = 1000;
    table.tombstones = tombstones;
    table.smallest = KeyOf(from);
    table.largest = KeyOf(to);
    auto& infos = levels[level];
    infos.insert(level == 0 ? infos.begin() : infos.end(), &table);
    return *this;
  }
  LevelInfos levels;

 private:
  std::deque<TableInfo> tables_;
};

using Numbers = std::vector<uint64_t>;

TEST(MergePlan, NothingWhenAllIsInShape) {
  EXPECT_FALSE(PickMerge({}, kShape));
  Shape shape;
  shape.Add(0, 0, 9).Add(0, 0, 9).Add(0, 0, 9).Add(1, 0, 4).Add(1, 5, 9).Add(2, 0, 9, 30 << 20);
  EXPECT_FALSE(PickMerge(shape.levels, kShape));
}

TEST(MergePlan, Level0GoesTogetherWithWhatItOverlaps) {
  Shape shape;
  shape.Add(1, 0, 9).Add(1, 10, 19).Add(1, 20, 29).Add(1, 40, 49);
  shape.Add(0, 12, 13).Add(0, 25, 26).Add(0, 19, 19).Add(0, 30, 35);
  const auto plan = PickMerge(shape.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->reason, MergeReason::kLevel0);
  EXPECT_EQ(plan->level, 0u);
  EXPECT_EQ(plan->output_level, 1u);
  EXPECT_EQ(plan->upper, (Numbers{8, 7, 6, 5}));
  EXPECT_EQ(plan->lower, (Numbers{2, 3}));
}

TEST(MergePlan, TheFullestLevelSendsWhatDragsLeastAlong) {
  Shape shape;
  shape.Add(1, 0, 9, 3 << 20).Add(1, 10, 19, 3 << 20).Add(1, 20, 29, 3 << 20);
  shape.Add(2, 0, 5, 2 << 20).Add(2, 6, 9, 2 << 20).Add(2, 12, 13, 1 << 20).Add(2, 25, 40, 3 << 20);
  const auto plan = PickMerge(shape.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->reason, MergeReason::kBytes);
  EXPECT_EQ(plan->level, 1u);
  EXPECT_EQ(plan->output_level, 2u);
  EXPECT_EQ(plan->upper, (Numbers{2}));
  EXPECT_EQ(plan->lower, (Numbers{6}));
}

TEST(MergePlan, DenseTombstonesGoDownWhateverTheSizes) {
  EXPECT_FALSE(IsDense({.records = 1000, .tombstones = 249, .smallest = "", .largest = ""}));
  EXPECT_TRUE(IsDense({.records = 1000, .tombstones = 250, .smallest = "", .largest = ""}));
  EXPECT_FALSE(IsDense({.records = 127, .tombstones = 127, .smallest = "", .largest = ""}));
  EXPECT_TRUE(IsDense({.records = 128, .tombstones = 128, .smallest = "", .largest = ""}));

  Shape shape;
  shape.Add(0, 0, 9).Add(0, 5, 9, 1 << 20, 900);
  shape.Add(1, 0, 9, 1 << 20, 100);
  auto plan = PickMerge(shape.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->reason, MergeReason::kTombstones);
  EXPECT_EQ(plan->upper, (Numbers{2, 1}));  // All of level 0: the older one may hold the same keys.
  EXPECT_EQ(plan->lower, (Numbers{3}));

  // Neighbours go along; one that is not dense ends the run.
  Shape run;
  run.Add(1, 0, 4).Add(1, 5, 9, 1 << 20, 400).Add(1, 10, 14, 1 << 20, 400).Add(1, 15, 19);
  run.Add(2, 0, 6).Add(2, 7, 12).Add(2, 16, 18);
  plan = PickMerge(run.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->upper, (Numbers{2, 3}));
  EXPECT_EQ(plan->lower, (Numbers{5, 6}));
  EXPECT_EQ(plan->output_level, 2u);
}

TEST(MergePlan, ARunIsNoLargerThanAMerge) {
  Shape shape;
  for (uint64_t i = 0; i < 30; ++i) shape.Add(1, i * 10, i * 10 + 9, 1 << 20, 500);
  const auto plan = PickMerge(shape.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->upper.size(), kLevelGrowth);
}

TEST(MergePlan, AtTheBottomADenseTableIsRewrittenInPlace) {
  Shape shape;
  shape.Add(1, 0, 9).Add(3, 0, 9, 1 << 20, 0).Add(3, 10, 19, 1 << 20, 999);
  const auto plan = PickMerge(shape.levels, kShape);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->level, 3u);
  EXPECT_EQ(plan->output_level, 3u);
  EXPECT_EQ(plan->upper, (Numbers{3}));
  EXPECT_TRUE(plan->lower.empty());
}

TEST(MergePlan, TheLastLevelMayHoldAnything) {
  Shape shape;
  shape.Add(kLevels - 1, 0, 9, uint64_t{1} << 50);
  EXPECT_FALSE(PickMerge(shape.levels, kShape));
}

TEST(MergePlan, CarryingPlansOutComesToAnEnd) {
  // A model of merging: the output's size is that of its inputs, tombstones go at the bottom.
  std::mt19937_64 random(23);
  for (int round = 0; round < 20; ++round) {
    std::array<std::vector<TableInfo>, kLevels> levels;
    uint64_t number = 0;
    for (int i = 0; i < 60; ++i) {
      TableInfo table;
      table.number = ++number;
      table.bytes = (random() % 4 + 1) << 18;
      table.records = 1000;
      table.tombstones = random() % 3 == 0 ? random() % 1000 : 0;
      const uint64_t from = random() % 90'000;
      table.smallest = KeyOf(from);
      table.largest = KeyOf(from + random() % 10'000);
      levels[0].insert(levels[0].begin(), table);
      for (int steps = 0;; ++steps) {
        ASSERT_LT(steps, 200);
        LevelInfos infos;
        for (size_t l = 0; l < kLevels; ++l) {
          for (const TableInfo& t : levels[l]) infos[l].push_back(&t);
        }
        const auto plan = PickMerge(infos, kShape);
        if (!plan) break;
        TableInfo sum;
        const auto take = [&](size_t level, const Numbers& numbers) {
          std::erase_if(levels[level], [&](const TableInfo& t) {
            if (std::find(numbers.begin(), numbers.end(), t.number) == numbers.end()) return false;
            sum.smallest = sum.bytes == 0 ? t.smallest : std::min(sum.smallest, t.smallest);
            sum.largest = std::max(sum.largest, t.largest);
            sum.bytes += t.bytes;
            sum.records += t.records;
            sum.tombstones += t.tombstones;
            return true;
          });
        };
        take(plan->level, plan->upper);
        take(plan->output_level, plan->lower);
        bool bottom = true;
        for (size_t l = plan->output_level + 1; l < kLevels; ++l) bottom &= levels[l].empty();
        if (bottom) sum.tombstones = 0;
        sum.number = ++number;
        auto& output = levels[plan->output_level];
        output.push_back(sum);
        std::sort(output.begin(), output.end(),
                  [](const auto& a, const auto& b) { return a.smallest < b.smallest; });
        for (size_t t = 1; t < output.size(); ++t) {
          ASSERT_LT(output[t - 1].largest, output[t].smallest);  // It took all that overlapped.
        }
      }
    }
    EXPECT_LT(levels[0].size(), kShape.level0_tables);
  }
}

}  // namespace
}  // namespace cairn::sstable
