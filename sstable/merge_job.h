// SPDX-License-Identifier: Apache-2.0
//
// Turns sorted records into index tables: the work of a flush and of a merge.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "sstable/merge_plan.h"
#include "sstable/merging_iterator.h"
#include "sstable/table_files.h"

namespace cairn::sstable {

// Level 0 from the newest table to the oldest; the others in the order of their keys.
using Levels = std::array<TableList, kLevels>;

LevelInfos InfosOf(const Levels& levels);

// Brings the tables of a level into its order.
void SortLevel(size_t level, TableList& tables);
// A table of a sorted level below 0 that overlaps the one before it, or null.
const IndexTable* FindOverlap(const TableList& tables);

// Whether data older than the output of a merge may have a key, so that its tombstone must be kept.
// Call it with ascending keys.
class OlderData {
 public:
  // The tables of the levels from `first` on.
  OlderData(std::shared_ptr<const Levels> levels, size_t first)
      : levels_(std::move(levels)), first_(first) {}
  bool MayHold(std::string_view key);

 private:
  const std::shared_ptr<const Levels> levels_;
  const size_t first_;
  std::array<size_t, kLevels> at_{};  // In each sorted level, the first table not before the key.
};

// Writes the records of `records`, from its first key on, into tables of about `table_bytes`,
// leaving out tombstones that are not needed any more. The tables are durable, and open, when this
// returns; none if no record was left. On an error no table remains, and nothing else has changed:
// kNoSpace, kIoError, kOutOfMemory, kCorruption of an input, or the callbacks'.
Result<TableList> WriteTables(const TableContext& context, RecordIterator& records,
                              OlderData& older, uint64_t table_bytes);

// Deletes the file and returns its space.
Status DeleteTable(const TableContext& context, uint64_t number, uint64_t bytes);

}  // namespace cairn::sstable
