// SPDX-License-Identifier: Apache-2.0
#include "sstable/merge_plan.h"

#include <algorithm>
#include <span>

#include "base/core/check.h"

namespace cairn::sstable {
namespace {

using Infos = std::vector<const TableInfo*>;

// The tables of a sorted level that overlap [smallest, largest].
std::span<const TableInfo* const> Overlap(const Infos& level, const std::string& smallest,
                                          const std::string& largest) {
  const auto begin = std::partition_point(level.begin(), level.end(), [&](const TableInfo* table) {
    return table->largest < smallest;
  });
  const auto end = std::partition_point(
      begin, level.end(), [&](const TableInfo* table) { return table->smallest <= largest; });
  return {begin, end};
}

uint64_t BytesOf(std::span<const TableInfo* const> tables) {
  uint64_t bytes = 0;
  for (const TableInfo* table : tables) bytes += table->bytes;
  return bytes;
}

size_t DeepestLevel(const LevelInfos& levels) {
  size_t deepest = 1;
  for (size_t level = 1; level < kLevels; ++level) {
    if (!levels[level].empty()) deepest = level;
  }
  return deepest;
}

MergePlan PlanFor(const LevelInfos& levels, MergeReason reason, size_t level, size_t output_level,
                  std::span<const TableInfo* const> upper) {
  CAIRN_CHECK(!upper.empty());
  CAIRN_CHECK(output_level > 0);
  CAIRN_CHECK(output_level < kLevels);
  CAIRN_CHECK(output_level == level || output_level == level + 1);
  MergePlan plan{
      .reason = reason, .level = level, .output_level = output_level, .upper = {}, .lower = {}};
  std::string smallest = upper[0]->smallest;
  std::string largest = upper[0]->largest;
  for (const TableInfo* table : upper) {
    plan.upper.push_back(table->number);
    smallest = std::min(smallest, table->smallest);
    largest = std::max(largest, table->largest);
  }
  if (output_level == level) return plan;
  for (const TableInfo* table : Overlap(levels[output_level], smallest, largest)) {
    plan.lower.push_back(table->number);
  }
  return plan;
}

std::optional<MergePlan> PickTombstones(const LevelInfos& levels, const MergeShape& shape) {
  for (const TableInfo* table : levels[0]) {
    if (IsDense(*table)) return PlanFor(levels, MergeReason::kTombstones, 0, 1, levels[0]);
  }
  const size_t deepest = DeepestLevel(levels);
  for (size_t level = 1; level <= deepest; ++level) {
    // The first dense table and its dense neighbours, within a merge's usual size.
    const Infos& tables = levels[level];
    const auto dense = [](const TableInfo* table) { return IsDense(*table); };
    const auto begin = std::find_if(tables.begin(), tables.end(), dense);
    if (begin == tables.end()) continue;
    uint64_t bytes = (*begin)->bytes;
    auto end = begin + 1;
    while (end != tables.end() && dense(*end) &&
           bytes + (*end)->bytes <= kLevelGrowth * shape.table_bytes) {
      bytes += (*end++)->bytes;
    }
    return PlanFor(levels, MergeReason::kTombstones, level, std::min(level + 1, deepest),
                   {begin, end});
  }
  return std::nullopt;
}

std::optional<MergePlan> PickBytes(const LevelInfos& levels, const MergeShape& shape) {
  // The level that is fullest relative to its limit; the last one has no limit.
  size_t fullest = 0;
  double excess = 1;
  double may_hold = static_cast<double>(shape.level1_bytes);
  for (size_t level = 1; level + 1 < kLevels; ++level) {
    const double share = static_cast<double>(BytesOf(levels[level])) / may_hold;
    if (share > excess) {
      fullest = level;
      excess = share;
    }
    may_hold *= static_cast<double>(kLevelGrowth);
  }
  if (fullest == 0) return std::nullopt;
  const auto dragged = [&](const TableInfo* table) {
    const auto overlap = Overlap(levels[fullest + 1], table->smallest, table->largest);
    return static_cast<double>(BytesOf(overlap)) / static_cast<double>(table->bytes);
  };
  const TableInfo* best = nullptr;
  double least = 0;
  for (const TableInfo* table : levels[fullest]) {
    const double cost = dragged(table);
    if (best == nullptr || cost < least) {
      best = table;
      least = cost;
    }
  }
  CAIRN_CHECK(best != nullptr);
  return PlanFor(levels, MergeReason::kBytes, fullest, fullest + 1, {&best, 1});
}

}  // namespace

bool IsDense(const TableInfo& table) {
  return table.tombstones >= kDenseTombstones && table.tombstones >= table.records / kDenseShare;
}

std::optional<MergePlan> PickMerge(const LevelInfos& levels, const MergeShape& shape) {
  CAIRN_CHECK(shape.table_bytes > 0);
  CAIRN_CHECK(shape.level1_bytes > 0);
  CAIRN_CHECK(shape.level0_tables > 0);
  if (levels[0].size() >= shape.level0_tables) {
    return PlanFor(levels, MergeReason::kLevel0, 0, 1, levels[0]);
  }
  if (auto plan = PickTombstones(levels, shape)) return plan;
  return PickBytes(levels, shape);
}

}  // namespace cairn::sstable
