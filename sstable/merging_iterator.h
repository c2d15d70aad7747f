// SPDX-License-Identifier: Apache-2.0
//
// Several sorted sources as one: of records with equal keys that of the newest source counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sstable/index_table.h"
#include "sstable/record_iterator.h"

namespace cairn::sstable {

class MergingIterator final : public RecordIterator {
 public:
  enum class Tombstones : uint8_t { kShow, kHide };

  // `sources` from the newest to the oldest. An error in any of them ends the walk: an unreadable
  // record could hide, or be hidden by, records behind it. The walk ends before the key `end`,
  // unless that is empty; tombstones beyond it are not walked either.
  MergingIterator(std::vector<std::unique_ptr<RecordIterator>> sources, Tombstones tombstones,
                  std::string end = {});

  void Seek(std::string_view target) override;
  void Next() override;
  bool valid() const override { return valid_; }
  std::string_view key() const override { return top().key(); }
  MaybeValue value() const override { return top().value(); }
  Status status() const override { return status_; }

  // Tombstones that were hidden since the last Seek or Next began, and the last of them.
  uint64_t hidden() const { return hidden_; }
  const std::string& last_hidden() const { return last_hidden_; }

 private:
  const RecordIterator& top() const { return *sources_[heap_.front()]; }
  bool IsBehind(size_t a, size_t b) const;
  void Push(size_t source);
  // Moves all sources behind the present key.
  void Advance();
  // Moves to the next record to show.
  void Settle();
  bool AtEnd() const { return heap_.empty() || (!end_.empty() && top().key() >= end_); }

  const std::vector<std::unique_ptr<RecordIterator>> sources_;
  const Tombstones tombstones_;
  const std::string end_;
  std::vector<size_t> heap_;  // Valid sources; the smallest key, then the newest, in front.
  bool valid_ = false;
  Status status_;
  std::string present_;
  uint64_t hidden_ = 0;
  std::string last_hidden_;
};

using TableList = std::vector<std::shared_ptr<const IndexTable>>;

// Tables that do not overlap, in the order of their keys, as one source.
class LevelIterator final : public RecordIterator {
 public:
  enum class Access : uint8_t { kScan, kMerge };  // IndexTable::NewIterator, NewMergeIterator

  LevelIterator(std::shared_ptr<const TableList> tables, Access access, const ReadOptions& options);

  void Seek(std::string_view target) override;
  void Next() override;
  bool valid() const override { return records_ != nullptr && records_->valid(); }
  std::string_view key() const override { return records_->key(); }
  MaybeValue value() const override { return records_->value(); }
  Status status() const override { return records_ == nullptr ? Status() : records_->status(); }

 private:
  void Open(size_t table);
  void SkipEnds();

  const std::shared_ptr<const TableList> tables_;
  const Access access_;
  const ReadOptions options_;
  size_t table_ = 0;
  // The iterator of that table; null before and behind all.
  std::unique_ptr<RecordIterator> records_;
};

// The first table whose largest key is not less. The tables are sorted and do not overlap.
size_t FirstTableNotBefore(const TableList& tables, std::string_view key);

}  // namespace cairn::sstable
