// SPDX-License-Identifier: Apache-2.0
//
// Reads one index table. Immutable, and safe from any number of threads.
//
// In memory stay, for each open table, its file handle, its properties and its root, which grows by
// about 30 bytes per 700 KiB of table and is one block of 4 KiB up to 64 MiB. Partitions (the rest
// of the index, and the bloom filters) and data blocks come through the block cache, so memory is
// bounded by the cache, whatever the store's size. A Get of a table that may hold the key costs at
// most two reads of about 16 KiB, one of which is shared by 12,000 neighbours.
//
// Every block is verified against its place when it is read. All damage gives kCorruption with file
// and offset; a file of a newer format kUnsupportedFormat.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sstable/index_block.h"
#include "sstable/record_iterator.h"
#include "sstable/table_files.h"

namespace cairn::sstable {

struct ReadOptions {
  // Never touch the device: kBusy when a block is not in memory.
  bool memory_only = false;
};

// A table's or memtable's answer for a key. None: it has nothing, ask the older ones.
struct FoundRecord {
  bool tombstone = false;
  std::string value;
};

class IndexTable : public std::enable_shared_from_this<IndexTable> {
 public:
  // Reads the end of the file, nothing else. kNotFound when there is no such file.
  static Result<std::shared_ptr<IndexTable>> Open(const TableContext& context, uint64_t number);

  const TableInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  size_t memory_bytes() const { return sizeof(*this) + root_block_.size(); }

  Result<std::optional<FoundRecord>> Get(std::string_view key, const ReadOptions& options) const;

  // For lookups and scans: blocks come from the cache and go into it.
  std::unique_ptr<RecordIterator> NewIterator(const ReadOptions& options) const;
  // For merges, from front to back: data blocks are read ahead into memory of its own, so that a
  // merge does not empty the cache.
  std::unique_ptr<RecordIterator> NewMergeIterator() const;

  // Reads everything: hashes, order, and that footer, root, partitions, filters and data agree.
  // Returns the first damage; VerifyEach reports every damaged block and continues with the rest.
  Status Verify() const;
  void VerifyEach(const std::function<void(const Status&)>& damaged) const;

 private:
  friend class IndexTableIterator;
  friend class LookupRounds;
  IndexTable(const TableContext& context, uint64_t number);

  Status ReadEnd();
  Status Bad(uint64_t offset, const std::string& what) const;
  Status OutOfMemory(uint64_t bytes) const;

  // Ok when the bytes are the block of this kind that belongs at the handle's place.
  Result<BlockView> Check(std::span<const std::byte> block, const BlockHandle& handle,
                          BlockKind kind) const;
  // The same without the hash, for blocks that were checked before.
  Result<BlockView> Parse(std::span<const std::byte> block, const BlockHandle& handle,
                          BlockKind kind) const;

  // --- The steps of a Get. `entry` is scratch for the search, and shows where it ended.
  // The partition that may have the key; none when the table cannot have it. The entry's key is the
  // last that the partition may have.
  Result<std::optional<BlockHandle>> FindPartition(std::string_view key,
                                                   BlockIterator* entry) const;
  // The data block that may hold the key; none if the filter excludes it.
  Result<std::optional<BlockHandle>> FindBlock(std::string_view key, const BlockView& partition,
                                               uint64_t partition_offset,
                                               BlockIterator* entry) const;
  // The same without the filter.
  Result<BlockHandle> BlockAt(std::string_view key, const BlockView& partition,
                              uint64_t partition_offset, BlockIterator* entry) const;
  Result<std::optional<FoundRecord>> FindRecord(std::string_view key, const BlockView& data,
                                                uint64_t data_offset, BlockIterator* entry) const;

  // --- Blocks. `view` is valid while the block is held.
  // Through the cache.
  Result<CachedBlock> Load(const BlockHandle& handle, BlockKind kind, const ReadOptions& options,
                           BlockView* view) const;
  // From the cache; null when it is not there.
  Result<CachedBlock> FindCached(const BlockHandle& handle, BlockKind kind, BlockView* view) const;
  // Memory for a block that the caller reads; empty when there is no memory.
  AlignedBuffer NewBlock(const BlockHandle& handle) const;
  // Verifies a block that was read, and gives it to the cache.
  Result<CachedBlock> TakeRead(const BlockHandle& handle, BlockKind kind, AlignedBuffer block,
                               BlockView* view) const;
  // Reads [offset, offset + into.size()).
  Status Read(uint64_t offset, std::span<std::byte> into) const;
  void CountRead(uint64_t bytes) const;
  // The handle in the entry on which the iterator stands.
  Status HandleOf(const BlockIterator& entry, uint64_t block_offset, BlockHandle* handle) const;
  Status DamagedEntry(const BlockIterator& entry, uint64_t block_offset) const;

  const TableContext context_;
  const std::string path_;
  TableInfo info_;
  std::unique_ptr<io::File> file_;
  uint32_t filter_probes_ = 0;
  BlockHandle root_handle_;
  AlignedBuffer root_block_;
  BlockView root_;
};

}  // namespace cairn::sstable
