// SPDX-License-Identifier: Apache-2.0
//
// Reads an index some of whose tables are cut, damaged or missing: every record that can still be
// read, and for each whether it is certain. A record is certain if no unreadable place can hold a
// newer one of its key. Newer tables come first, as in any lookup; tables of a level from 1 on do
// not overlap, so what a whole table covers no lost table of its level can hold.
//
// A damaged table is read block by block, from the front, since every block is under a seal with
// its place. Between two readable blocks that are not neighbours, and behind the last one, lies a
// *hole*: keys that the table may have had.
//
// Reads every table twice (Look verifies it). One thread. Errors: kIoError, kOutOfMemory,
// kUnsupportedFormat; kCorruption for a list that no store writes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sstable/lsm_index.h"

namespace cairn::sstable {

class IndexRescue {
 public:
  static Result<IndexRescue> Look(const TableContext& context, std::span<const LiveTable> live);

  // The tables that are whole; an index of these opens.
  const std::vector<LiveTable>& whole() const { return whole_; }
  struct Lost {
    LiveTable table;
    bool missing = false;  // There is no such file.
  };
  const std::vector<Lost>& lost() const { return lost_; }
  const Status& first_damage() const { return first_damage_; }

  struct Record {
    std::string_view key;
    MaybeValue newest;  // The newest that can be read; null: deleted.
    bool certain = false;
    MaybeValue shown;  // By an index of the whole tables.
  };
  // Every key that can be read, ascending. An error of `visit` ends the walk.
  Status Walk(const std::function<Status(const Record&)>& visit) const;

 private:
  struct Block {
    uint64_t offset = 0;
    uint32_t bytes = 0;
  };
  // A table to read from, whole or not.
  struct Source {
    size_t level = 0;
    uint64_t number = 0;
    std::shared_ptr<const IndexTable> whole;
    std::vector<Block> blocks;  // A damaged table's.
  };
  // Keys behind `after` and before `before` (empty: no bound) of one table.
  struct Hole {
    size_t level = 0;
    uint64_t number = 0;
    std::string after, before;
  };
  class BlockRecords;

  explicit IndexRescue(const TableContext& context) : context_(context) {}
  Status LookAt(const LiveTable& table);
  Status ReadDamaged(const LiveTable& table);
  bool Covers(size_t level, std::string_view key) const;
  bool IsCertain(const Source& source, std::string_view key) const;
  std::unique_ptr<RecordIterator> Read(const Source& source) const;

  TableContext context_;
  std::vector<LiveTable> whole_;
  std::vector<Lost> lost_;
  Status first_damage_;
  std::vector<Source> sources_;  // The newest first.
  std::array<TableList, kLevels> levels_;
  std::vector<Hole> holes_;
  // Tables of which nothing can be read: the newest of level 0, and whether there are others.
  uint64_t newest_lost_ = 0;
  std::array<bool, kLevels> any_lost_{};
};

}  // namespace cairn::sstable
