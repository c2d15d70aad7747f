// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_table_iterator.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::sstable {

IndexTableIterator::IndexTableIterator(std::shared_ptr<const IndexTable> table,
                                       const ReadOptions& options, bool reads_ahead)
    : table_(std::move(table)), options_(options), reads_ahead_(reads_ahead) {
  CAIRN_CHECK(table_ != nullptr);
  CAIRN_CHECK(!(reads_ahead && options.memory_only));
}

void IndexTableIterator::Settle(Status status) {
  status_ = std::move(status);
  valid_ = status_.ok() && data_.valid();
}

void IndexTableIterator::Seek(std::string_view target) {
  data_ = {};
  root_ = BlockIterator(table_->root_);
  root_.Seek(target);
  if (root_.damaged()) return Settle(table_->DamagedEntry(root_, table_->root_handle_.offset));
  if (!root_.valid()) return Settle(Status::Ok());  // Behind the last key.
  Status status = EnterPartition(&target);
  if (status.ok()) status = SkipEnds();
  Settle(std::move(status));
}

void IndexTableIterator::Next() {
  CAIRN_CHECK(valid_);
  CAIRN_CHECK(status_.ok());
  data_.Next();
  Settle(data_.valid() ? Status::Ok() : SkipEnds());
}

Status IndexTableIterator::SkipEnds() {
  while (!data_.valid()) {
    if (data_.damaged()) return table_->DamagedEntry(data_, data_handle_.offset);
    partition_.Next();
    if (partition_.damaged()) return table_->DamagedEntry(partition_, partition_handle_.offset);
    if (partition_.valid()) {
      CAIRN_RETURN_IF_ERROR(EnterData(nullptr));
      continue;
    }
    root_.Next();
    if (root_.damaged()) return table_->DamagedEntry(root_, table_->root_handle_.offset);
    if (!root_.valid()) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(EnterPartition(nullptr));
  }
  return Status::Ok();
}

Status IndexTableIterator::EnterPartition(const std::string_view* target) {
  CAIRN_CHECK(root_.valid());
  CAIRN_RETURN_IF_ERROR(table_->HandleOf(root_, table_->root_handle_.offset, &partition_handle_));
  CAIRN_ASSIGN_OR_RETURN(partition_block_, table_->Load(partition_handle_, BlockKind::kPartition,
                                                        options_, &partition_view_));
  partition_ = BlockIterator(partition_view_);
  if (target != nullptr) {
    partition_.Seek(*target);
  } else {
    partition_.SeekToFirst();
  }
  if (partition_.damaged()) return table_->DamagedEntry(partition_, partition_handle_.offset);
  if (!partition_.valid()) {
    return table_->Bad(partition_handle_.offset, "the partition ends before its last key");
  }
  return EnterData(target);
}

Status IndexTableIterator::EnterData(const std::string_view* target) {
  CAIRN_CHECK(partition_.valid());
  CAIRN_RETURN_IF_ERROR(table_->HandleOf(partition_, partition_handle_.offset, &data_handle_));
  data_ = {};
  BlockView view;
  if (reads_ahead_) {
    CAIRN_ASSIGN_OR_RETURN(view, ReadData(data_handle_));
  } else {
    CAIRN_ASSIGN_OR_RETURN(data_block_,
                           table_->Load(data_handle_, BlockKind::kData, options_, &view));
  }
  data_ = BlockIterator(view);
  if (target != nullptr) {
    data_.Seek(*target);
  } else {
    data_.SeekToFirst();
  }
  return Status::Ok();
}

Result<BlockView> IndexTableIterator::ReadData(const BlockHandle& handle) {
  if (handle.offset < window_begin_ || handle.offset + handle.bytes > window_end_) {
    const uint64_t length = std::min<uint64_t>(table_->root_handle_.offset - handle.offset,
                                               std::max<uint64_t>(handle.bytes, kReadAheadBytes));
    window_begin_ = window_end_ = 0;
    if (window_.size() < length) {
      window_ = AlignedBuffer::TryAllocate(table_->context_.allocator, static_cast<size_t>(length),
                                           kTableAlignment);
      if (window_.empty()) return table_->OutOfMemory(length);
    }
    CAIRN_RETURN_IF_ERROR(
        table_->Read(handle.offset, window_.span().first(static_cast<size_t>(length))));
    window_begin_ = handle.offset;
    window_end_ = handle.offset + length;
  }
  CAIRN_CHECK(handle.offset >= window_begin_);
  CAIRN_CHECK(handle.offset + handle.bytes <= window_end_);
  const auto from = static_cast<size_t>(handle.offset - window_begin_);
  return table_->Check(window_.span().subspan(from, handle.bytes), handle, BlockKind::kData);
}

}  // namespace cairn::sstable
