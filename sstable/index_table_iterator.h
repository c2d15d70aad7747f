// SPDX-License-Identifier: Apache-2.0
//
// Walks an index table: the root, a partition, a data block at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/core/aligned_buffer.h"
#include "sstable/index_table.h"
#include "sstable/record_iterator.h"

namespace cairn::sstable {

class IndexTableIterator final : public RecordIterator {
 public:
  // With `reads_ahead`, data blocks are read many at a time and kept out of the cache.
  IndexTableIterator(std::shared_ptr<const IndexTable> table, const ReadOptions& options,
                     bool reads_ahead);

  void Seek(std::string_view target) override;
  void Next() override;
  bool valid() const override { return valid_; }
  std::string_view key() const override { return data_.key(); }
  MaybeValue value() const override { return data_.value(); }
  Status status() const override { return status_; }

 private:
  // Each loads the block that the upper iterator points to and places the lower one: at the target,
  // or at its first entry when that is null.
  Status EnterPartition(const std::string_view* target);
  Status EnterData(const std::string_view* target);
  // Moves on to the next block while the present one is at its end.
  Status SkipEnds();
  Result<BlockView> ReadData(const BlockHandle& handle);
  void Settle(Status status);

  const std::shared_ptr<const IndexTable> table_;
  const ReadOptions options_;
  const bool reads_ahead_;

  BlockIterator root_;
  BlockHandle partition_handle_;
  CachedBlock partition_block_;
  BlockView partition_view_;
  BlockIterator partition_;
  BlockHandle data_handle_;
  CachedBlock data_block_;  // Unless reading ahead.
  BlockIterator data_;

  AlignedBuffer window_;  // Reading ahead: bytes [window_begin_, window_end_) of the file.
  uint64_t window_begin_ = 0;
  uint64_t window_end_ = 0;

  bool valid_ = false;
  Status status_;
};

}  // namespace cairn::sstable
