// SPDX-License-Identifier: Apache-2.0
//
// Which index tables to merge next: a pure function of the levels' properties, so that it can be
// tested by tables of numbers and gives the same answer after every restart.
//
// Leveled merging as in LevelDB, with two choices of its own: within a level the table goes first
// that overlaps the fewest bytes of the next one, and tables dense with tombstones go down whatever
// the sizes, until the tombstones vanish at the bottom. Without that, every scan over a million
// deleted records would read them all.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sstable/constants.h"
#include "sstable/index_format.h"

namespace cairn::sstable {

// Level 0 from the newest table to the oldest; the others in the order of their keys, which do not
// overlap.
using LevelInfos = std::array<std::vector<const TableInfo*>, kLevels>;

struct MergeShape {
  uint64_t table_bytes = 32 << 20;    // Where a merge's output is split.
  uint64_t level1_bytes = 128 << 20;  // Level n + 1 may hold kLevelGrowth times what level n may.
  size_t level0_tables = 4;           // Every lookup asks each of them, so they are few.
};

enum class MergeReason : uint8_t { kLevel0, kTombstones, kBytes };

struct MergePlan {
  MergeReason reason = MergeReason::kBytes;
  size_t level = 0;
  size_t output_level = 0;      // level + 1; level itself at the bottom.
  std::vector<uint64_t> upper;  // Table numbers of `level`...
  std::vector<uint64_t> lower;  // ...and those of the output level, if another, that overlap them.
};

// Nothing when all is in shape. Carrying out plans until there is none terminates.
std::optional<MergePlan> PickMerge(const LevelInfos& levels, const MergeShape& shape);

// See kDenseShare.
bool IsDense(const TableInfo& table);

}  // namespace cairn::sstable
