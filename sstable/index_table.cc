// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_table.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "sstable/bloom.h"
#include "sstable/index_table_iterator.h"

namespace cairn::sstable {

IndexTable::IndexTable(const TableContext& context, uint64_t number)
    : context_(context), path_(IndexTablePath(context.directory, number)) {
  info_.number = number;
}

Status IndexTable::Bad(uint64_t offset, const std::string& what) const {
  return Status(StatusCode::kCorruption, At(path_, offset) + what);
}

Status IndexTable::OutOfMemory(uint64_t bytes) const {
  return Status(StatusCode::kOutOfMemory,
                "no memory to read " + std::to_string(bytes) + " bytes of " + path_);
}

Result<std::shared_ptr<IndexTable>> IndexTable::Open(const TableContext& context, uint64_t number) {
  std::shared_ptr<IndexTable> table(new IndexTable(context, number));
  CAIRN_ASSIGN_OR_RETURN(table->file_, context.files->Open(table->path_, {.direct = true}));
  CAIRN_RETURN_IF_ERROR(table->ReadEnd());
  return table;
}

Status IndexTable::ReadEnd() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file_->Size());
  if (bytes < kTableAlignment || bytes % kTableAlignment != 0) {
    return Bad(0, "the file has " + std::to_string(bytes) + " bytes, which no table has");
  }
  const uint64_t end_bytes = std::min<uint64_t>(bytes, kOpenReadBytes);
  AlignedBuffer end = AlignedBuffer::TryAllocate(context_.allocator, static_cast<size_t>(end_bytes),
                                                 kTableAlignment);
  if (end.empty()) return OutOfMemory(end_bytes);
  CAIRN_RETURN_IF_ERROR(Read(bytes - end_bytes, end.span()));
  auto footer = ParseFooter(end.span().last(kTableAlignment), context_.store, info_.number, bytes);
  if (!footer.ok()) {
    return footer.status().WithContext(path_ + ": offset " +
                                       std::to_string(bytes - kTableAlignment));
  }
  info_ = std::move(footer->info);
  filter_probes_ = footer->filter_probes;
  root_handle_ = footer->root;
  // As EncodeFooter was given them.
  CAIRN_CHECK(filter_probes_ > 0);
  CAIRN_CHECK(root_handle_.offset + root_handle_.bytes + kTableAlignment == bytes);

  root_block_ = AlignedBuffer::TryAllocate(context_.allocator, root_handle_.bytes, kTableAlignment);
  if (root_block_.empty()) return OutOfMemory(root_handle_.bytes);
  const uint64_t end_offset = bytes - end_bytes;
  if (root_handle_.offset >= end_offset) {
    std::memcpy(root_block_.data(), end.data() + (root_handle_.offset - end_offset),
                root_handle_.bytes);
  } else {
    CAIRN_RETURN_IF_ERROR(Read(root_handle_.offset, root_block_.span()));
  }
  CAIRN_ASSIGN_OR_RETURN(root_, Check(root_block_.span(), root_handle_, BlockKind::kRoot));
  return Status::Ok();
}

Status IndexTable::Read(uint64_t offset, std::span<std::byte> into) const {
  CAIRN_CHECK(offset % kTableAlignment == 0);
  CAIRN_CHECK(into.size() % kTableAlignment == 0);
  CAIRN_RETURN_IF_ERROR(file_->Read(offset, into));
  CountRead(into.size());
  return Status::Ok();
}

void IndexTable::CountRead(uint64_t bytes) const {
  context_.counters->block_reads.fetch_add(1, std::memory_order_relaxed);
  context_.counters->read_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

Result<BlockView> IndexTable::Check(std::span<const std::byte> block, const BlockHandle& handle,
                                    BlockKind kind) const {
  CAIRN_CHECK(block.size() == handle.bytes);
  if (!CheckSeal(block, context_.store, info_.number, handle.offset)) {
    return Bad(handle.offset, "block: the hash does not fit its contents and place");
  }
  return Parse(block, handle, kind);
}

Result<BlockView> IndexTable::Parse(std::span<const std::byte> block, const BlockHandle& handle,
                                    BlockKind kind) const {
  Result<BlockView> view = BlockView::Parse(block, kind);
  if (view.ok()) return view;
  return view.status().WithContext(path_ + ": offset " + std::to_string(handle.offset));
}

Result<CachedBlock> IndexTable::FindCached(const BlockHandle& handle, BlockKind kind,
                                           BlockView* view) const {
  CachedBlock cached = context_.cache->Find({info_.number, handle.offset});
  if (cached == nullptr) return cached;
  // Two entries of a damaged index may disagree on the length or kind.
  if (cached->size() != handle.bytes) return Bad(handle.offset, "block: of two lengths");
  CAIRN_ASSIGN_OR_RETURN(*view, Parse(cached->span(), handle, kind));
  context_.counters->cache_hits.fetch_add(1, std::memory_order_relaxed);
  return cached;
}

AlignedBuffer IndexTable::NewBlock(const BlockHandle& handle) const {
  CAIRN_CHECK(handle.bytes % kTableAlignment == 0);
  CAIRN_CHECK(handle.offset + handle.bytes <= root_handle_.offset);
  return AlignedBuffer::TryAllocate(context_.allocator, handle.bytes, kTableAlignment);
}

Result<CachedBlock> IndexTable::TakeRead(const BlockHandle& handle, BlockKind kind,
                                         AlignedBuffer block, BlockView* view) const {
  CAIRN_RETURN_IF_ERROR(Check(block.span(), handle, kind).status());
  CachedBlock cached = context_.cache->Insert({info_.number, handle.offset}, std::move(block));
  CAIRN_ASSIGN_OR_RETURN(*view, Parse(cached->span(), handle, kind));
  return cached;
}

Result<CachedBlock> IndexTable::Load(const BlockHandle& handle, BlockKind kind,
                                     const ReadOptions& options, BlockView* view) const {
  CAIRN_ASSIGN_OR_RETURN(CachedBlock cached, FindCached(handle, kind, view));
  if (cached != nullptr) return cached;
  if (options.memory_only) {
    return Status(StatusCode::kBusy, At(path_, handle.offset) + "not in memory");
  }
  AlignedBuffer block = NewBlock(handle);
  if (block.empty()) return OutOfMemory(handle.bytes);
  CAIRN_RETURN_IF_ERROR(Read(handle.offset, block.span()));
  return TakeRead(handle, kind, std::move(block), view);
}

Status IndexTable::DamagedEntry(const BlockIterator& entry, uint64_t block_offset) const {
  return Bad(block_offset, "block: the entry at byte " + std::to_string(entry.offset()) +
                               " does not decode or is out of order");
}

Status IndexTable::HandleOf(const BlockIterator& entry, uint64_t block_offset,
                            BlockHandle* handle) const {
  if (!entry.value() || !DecodeHandle(*entry.value(), handle) ||
      handle->offset + handle->bytes > root_handle_.offset) {
    return DamagedEntry(entry, block_offset);
  }
  return Status::Ok();
}

Result<std::optional<BlockHandle>> IndexTable::FindPartition(std::string_view key,
                                                             BlockIterator* entry) const {
  if (key < info_.smallest || key > info_.largest) return std::optional<BlockHandle>();
  entry->Enter(root_);
  entry->Seek(key);
  if (entry->damaged()) return DamagedEntry(*entry, root_handle_.offset);
  if (!entry->valid()) return Bad(root_handle_.offset, "the root ends before the largest key");
  BlockHandle handle;
  CAIRN_RETURN_IF_ERROR(HandleOf(*entry, root_handle_.offset, &handle));
  return std::optional(handle);
}

Result<std::optional<BlockHandle>> IndexTable::FindBlock(std::string_view key,
                                                         const BlockView& partition,
                                                         uint64_t partition_offset,
                                                         BlockIterator* entry) const {
  if (!FilterMayContain(partition.filter(), filter_probes_, FilterHash(key))) {
    context_.counters->filter_skips.fetch_add(1, std::memory_order_relaxed);
    return std::optional<BlockHandle>();
  }
  CAIRN_ASSIGN_OR_RETURN(const BlockHandle handle,
                         BlockAt(key, partition, partition_offset, entry));
  return std::optional(handle);
}

Result<BlockHandle> IndexTable::BlockAt(std::string_view key, const BlockView& partition,
                                        uint64_t partition_offset, BlockIterator* entry) const {
  entry->Enter(partition);
  entry->Seek(key);
  if (entry->damaged()) return DamagedEntry(*entry, partition_offset);
  if (!entry->valid()) return Bad(partition_offset, "the partition ends before its last key");
  BlockHandle handle;
  CAIRN_RETURN_IF_ERROR(HandleOf(*entry, partition_offset, &handle));
  return handle;
}

Result<std::optional<FoundRecord>> IndexTable::FindRecord(std::string_view key,
                                                          const BlockView& data,
                                                          uint64_t data_offset,
                                                          BlockIterator* entry) const {
  entry->Enter(data);
  entry->Seek(key);
  if (entry->damaged()) return DamagedEntry(*entry, data_offset);
  if (!entry->valid() || entry->key() != key) return std::optional<FoundRecord>();
  FoundRecord found;
  found.tombstone = !entry->value();
  if (entry->value()) found.value.assign(*entry->value());
  return std::optional<FoundRecord>(std::move(found));
}

Result<std::optional<FoundRecord>> IndexTable::Get(std::string_view key,
                                                   const ReadOptions& options) const {
  BlockIterator entry;
  CAIRN_ASSIGN_OR_RETURN(const auto partition, FindPartition(key, &entry));
  if (!partition) return std::optional<FoundRecord>();
  BlockView view;
  CAIRN_ASSIGN_OR_RETURN(const CachedBlock partition_block,
                         Load(*partition, BlockKind::kPartition, options, &view));
  CAIRN_ASSIGN_OR_RETURN(const auto data, FindBlock(key, view, partition->offset, &entry));
  if (!data) return std::optional<FoundRecord>();
  CAIRN_ASSIGN_OR_RETURN(const CachedBlock data_block,
                         Load(*data, BlockKind::kData, options, &view));
  return FindRecord(key, view, data->offset, &entry);
}

std::unique_ptr<RecordIterator> IndexTable::NewIterator(const ReadOptions& options) const {
  return std::make_unique<IndexTableIterator>(shared_from_this(), options, /*reads_ahead=*/false);
}

std::unique_ptr<RecordIterator> IndexTable::NewMergeIterator() const {
  return std::make_unique<IndexTableIterator>(shared_from_this(), ReadOptions{},
                                              /*reads_ahead=*/true);
}

Status IndexTable::Verify() const {
  Status first;
  VerifyEach([&](const Status& damage) {
    if (first.ok()) first = damage;
  });
  return first;
}

// Block by block, bypassing the cache: the device's content counts.
// Longer than other functions: one walk, whose checks share what they count.
void IndexTable::VerifyEach(const std::function<void(const Status&)>& damaged) const {
  TableInfo counted;
  counted.number = info_.number;
  counted.bytes = info_.bytes;
  bool whole = true;
  const auto bad = [&](const Status& status) {
    whole = false;
    damaged(status);
  };
  AlignedBuffer partition_block, data_block;
  const auto load = [&](const BlockHandle& handle, BlockKind kind,
                        AlignedBuffer* into) -> Result<BlockView> {
    if (into->size() < handle.bytes) {
      *into = AlignedBuffer::TryAllocate(context_.allocator, handle.bytes, kTableAlignment);
      if (into->empty()) return OutOfMemory(handle.bytes);
    }
    const std::span<std::byte> block = into->span().first(handle.bytes);
    CAIRN_RETURN_IF_ERROR(Read(handle.offset, block));
    return Check(block, handle, kind);
  };
  const auto check_restarts = [&](const BlockView& block, const BlockHandle& handle) {
    if (!BlockIterator::RestartsFit(block)) {
      bad(Bad(handle.offset, "block: a restart is none of its entries"));
    }
  };
  // Lookups rely on this: the keys of a block are behind the entry before its own, and up to its
  // own.
  struct Cover {
    std::optional<std::string> behind, last;
    bool Holds(std::string_view key) const { return (!behind || key > *behind) && key <= *last; }
    void Next(const std::string& entry) { behind = std::exchange(last, entry); }
  };
  Cover in_root, in_partition;
  const auto verify_data = [&](const BlockHandle& handle, const BlockView& partition) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const BlockView data, load(handle, BlockKind::kData, &data_block));
    ++counted.data_blocks;
    BlockIterator record(data);
    for (record.SeekToFirst(); record.valid(); record.Next()) {
      if (counted.records == 0) counted.smallest = record.key();
      if (counted.records > 0 && record.key() <= counted.largest) {
        return Bad(handle.offset, "block: does not follow the one before");
      }
      if (!FilterMayContain(partition.filter(), filter_probes_, FilterHash(record.key()))) {
        return Bad(handle.offset, "block: a key that the filter does not know");
      }
      if (!in_root.Holds(record.key()) || !in_partition.Holds(record.key())) {
        return Bad(handle.offset, "block: a key that its entry in the index does not cover");
      }
      counted.largest = record.key();
      ++counted.records;
      counted.tombstones += record.value() ? 0 : 1;
      counted.key_bytes += record.key().size();
      counted.value_bytes += record.value() ? record.value()->size() : 0;
    }
    if (record.damaged()) return DamagedEntry(record, handle.offset);
    check_restarts(data, handle);
    return Status::Ok();
  };
  BlockIterator root(root_);
  for (root.SeekToFirst(); root.valid(); root.Next()) {
    in_root.Next(root.key());
    BlockHandle partition_handle;
    if (const Status status = HandleOf(root, root_handle_.offset, &partition_handle);
        !status.ok()) {
      bad(status);
      continue;
    }
    const auto partition = load(partition_handle, BlockKind::kPartition, &partition_block);
    if (!partition.ok()) {
      bad(partition.status());
      continue;
    }
    ++counted.partitions;
    BlockIterator entry(*partition);
    for (entry.SeekToFirst(); entry.valid(); entry.Next()) {
      in_partition.Next(entry.key());
      BlockHandle handle;
      Status status = HandleOf(entry, partition_handle.offset, &handle);
      if (status.ok()) status = verify_data(handle, *partition);
      if (!status.ok()) bad(status);
    }
    if (entry.damaged()) {
      bad(DamagedEntry(entry, partition_handle.offset));
    } else {
      check_restarts(*partition, partition_handle);
    }
  }
  if (root.damaged()) {
    bad(DamagedEntry(root, root_handle_.offset));
  } else {
    check_restarts(root_, root_handle_);
  }
  if (whole && counted != info_) {
    damaged(Bad(info_.bytes - kTableAlignment, "the footer does not count what the table holds"));
  }
}

}  // namespace cairn::sstable
