// SPDX-License-Identifier: Apache-2.0
//
// Writes one index table, front to back.
//
// The file is called *.tmp until all of it is synced; then it is renamed and the directory
// synced. A crash before that leaves an unfinished file that is never taken for a table, or a
// finished one that no log record names: an orphan. Finish returns when the table survives every
// crash.
//
// Memory: one write buffer (kTableWriteBytes), a data block, a partition, and 8 bytes for each key
// of a partition (about 12,000).
//
// One thread at a time. Errors stick: after a failure every call returns the same status. Errors
// are kNoSpace (from the callbacks or the disk), kIoError, kOutOfMemory, and those of the
// callbacks. The destructor of a writer that did not finish removes its file and, if that worked,
// returns the space.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "sstable/index_block.h"
#include "sstable/index_format.h"
#include "sstable/table_files.h"

namespace cairn::sstable {

class IndexWriter {
 public:
  static Result<std::unique_ptr<IndexWriter>> Create(const TableContext& context, uint64_t number);
  ~IndexWriter();
  IndexWriter(const IndexWriter&) = delete;
  IndexWriter& operator=(const IndexWriter&) = delete;

  // REQUIRES: keys strictly ascending, within kMaxKeyBytes and kMaxValueBytes. A null value is a
  // tombstone.
  Status Add(std::string_view key, MaybeValue value);

  // Size of the file if it ended now, within a block or two.
  uint64_t bytes() const { return end_ + data_.bytes() + partition_.bytes(); }

  // REQUIRES: at least one record. Nothing may be added afterwards.
  Result<TableInfo> Finish();

 private:
  IndexWriter(const TableContext& context, uint64_t number);

  Status Keep(Status status);
  Status FinishDataBlock(std::string_view next_key);
  Status FinishPartition();
  Status WriteBlock(BlockKind kind, std::string block, BlockHandle* handle);
  Status AppendBytes(std::string_view bytes);
  Status WriteBuffer();
  Status WriteRest();
  Status Publish();

  const TableContext context_;
  const std::string path_;
  const std::string temporary_path_;
  TableInfo info_;
  Status status_;
  std::unique_ptr<io::File> file_;
  bool created_ = false;
  bool finished_ = false;

  AlignedBuffer buffer_;
  size_t buffered_ = 0;
  uint64_t written_ = 0;  // Bytes of the file before the buffer.
  uint64_t end_ = 0;      // written_ and what is buffered: the offset of the next block.
  uint64_t taken_ = 0;    // From the callbacks.

  BlockBuilder data_;
  std::vector<uint64_t> data_hashes_;  // Hashes of the keys in `data_`, for the filter.
  BlockBuilder partition_;
  std::vector<uint64_t> partition_hashes_;
  BlockBuilder root_;
};

}  // namespace cairn::sstable
