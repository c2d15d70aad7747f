// SPDX-License-Identifier: Apache-2.0
#include "sstable/index_writer.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "sstable/bloom.h"

namespace cairn::sstable {
namespace {

// The shortest easily found key with last <= key < next.
std::string Separator(const std::string& last, std::string_view next) {
  CAIRN_CHECK(last < next);
  size_t common = 0;
  while (common < last.size() && last[common] == next[common]) ++common;
  if (common == last.size()) return last;
  const auto byte = static_cast<uint8_t>(last[common]);
  if (byte + 1 >= static_cast<uint8_t>(next[common])) return last;
  return last.substr(0, common) + static_cast<char>(byte + 1);
}

}  // namespace

IndexWriter::IndexWriter(const TableContext& context, uint64_t number)
    : context_(context),
      path_(IndexTablePath(context.directory, number)),
      temporary_path_(path_ + kUnfinishedSuffix) {
  info_.number = number;
}

Result<std::unique_ptr<IndexWriter>> IndexWriter::Create(const TableContext& context,
                                                         uint64_t number) {
  CAIRN_CHECK(context.callbacks != nullptr);
  CAIRN_CHECK(number != 0);
  std::unique_ptr<IndexWriter> writer(new IndexWriter(context, number));
  writer->buffer_ =
      AlignedBuffer::TryAllocate(context.allocator, kTableWriteBytes, kTableAlignment);
  if (writer->buffer_.empty()) {
    return Status(StatusCode::kOutOfMemory, "no memory to write " + writer->temporary_path_);
  }
  CAIRN_ASSIGN_OR_RETURN(
      writer->file_,
      context.files->Open(writer->temporary_path_,
                          {.write = true, .create = true, .exclusive = true, .direct = true}));
  writer->created_ = true;
  return writer;
}

IndexWriter::~IndexWriter() {
  if (finished_ || !created_) return;
  file_.reset();
  // After a failed sync of the directory the file has its final name already. A file that cannot be
  // removed keeps its space until it is removed as an orphan.
  const bool removed = io::RemoveIfExists(*context_.files, temporary_path_).ok() &&
                       io::RemoveIfExists(*context_.files, path_).ok();
  if (removed) context_.callbacks->ReturnSpace(taken_);
}

Status IndexWriter::Keep(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return status_;
}

Status IndexWriter::Add(std::string_view key, MaybeValue value) {
  CAIRN_CHECK(!finished_);
  CAIRN_CHECK(info_.records == 0 || info_.largest < key);
  CAIRN_CHECK(key.size() <= kMaxKeyBytes);
  CAIRN_RETURN_IF_ERROR(status_);
  if (!data_.empty() && data_.BytesWith(key, value) > kIndexBlockBytes) {
    CAIRN_RETURN_IF_ERROR(Keep(FinishDataBlock(key)));
  }
  data_.Add(key, value);
  data_hashes_.push_back(FilterHash(key));
  if (info_.records == 0) info_.smallest.assign(key);
  info_.largest.assign(key);
  ++info_.records;
  info_.tombstones += value ? 0 : 1;
  info_.key_bytes += key.size();
  info_.value_bytes += value ? value->size() : 0;
  return Status::Ok();
}

// `next_key` is the first of the next block.
Status IndexWriter::FinishDataBlock(std::string_view next_key) {
  CAIRN_CHECK(!data_hashes_.empty());
  const std::string separator = Separator(data_.last_key(), next_key);
  CAIRN_CHECK(data_.last_key() <= separator);
  CAIRN_CHECK(separator < next_key);
  BlockHandle handle;
  CAIRN_RETURN_IF_ERROR(WriteBlock(BlockKind::kData, data_.Finish(BlockKind::kData, {}), &handle));
  ++info_.data_blocks;
  const std::string value = EncodeHandle(handle);
  const size_t with = partition_.BytesWith(separator, value) +
                      FilterBytes(partition_hashes_.size() + data_hashes_.size());
  if (!partition_.empty() && with > kIndexBlockBytes) CAIRN_RETURN_IF_ERROR(FinishPartition());
  partition_.Add(separator, value);
  partition_hashes_.insert(partition_hashes_.end(), data_hashes_.begin(), data_hashes_.end());
  data_hashes_.clear();
  return Status::Ok();
}

Status IndexWriter::FinishPartition() {
  CAIRN_CHECK(!partition_hashes_.empty());
  const std::string last = partition_.last_key();
  BlockHandle handle;
  CAIRN_RETURN_IF_ERROR(WriteBlock(
      BlockKind::kPartition,
      partition_.Finish(BlockKind::kPartition, BuildFilter(partition_hashes_)), &handle));
  ++info_.partitions;
  partition_hashes_.clear();
  root_.Add(last, EncodeHandle(handle));
  return Status::Ok();
}

Status IndexWriter::WriteBlock(BlockKind kind, std::string block, BlockHandle* handle) {
  CAIRN_CHECK(end_ % kTableAlignment == 0);
  CAIRN_CHECK(kind == BlockKind::kRoot || block.size() <= kMaxBlockBytes);
  CAIRN_CHECK(block.size() <= UINT32_MAX);
  handle->offset = end_;
  handle->bytes = static_cast<uint32_t>(block.size());
  SealBlock(block, context_.store, info_.number, end_);
  return AppendBytes(block);
}

Status IndexWriter::AppendBytes(std::string_view bytes) {
  while (!bytes.empty()) {
    if (buffered_ == kTableWriteBytes) CAIRN_RETURN_IF_ERROR(WriteBuffer());
    const size_t part = std::min(bytes.size(), kTableWriteBytes - buffered_);
    std::memcpy(buffer_.data() + buffered_, bytes.data(), part);
    buffered_ += part;
    end_ += part;
    bytes.remove_prefix(part);
  }
  CAIRN_CHECK(end_ == written_ + buffered_);
  return Status::Ok();
}

Status IndexWriter::WriteBuffer() {
  CAIRN_CHECK(buffered_ > 0);
  CAIRN_CHECK(buffered_ % kTableAlignment == 0);
  CAIRN_CHECK(taken_ == written_);  // Nothing is written behind an error.
  CAIRN_RETURN_IF_ERROR(context_.callbacks->TakeSpace(buffered_));
  taken_ += buffered_;
  CAIRN_RETURN_IF_ERROR(file_->Write(written_, buffer_.span().first(buffered_), /*durable=*/false));
  context_.counters->written_bytes.fetch_add(buffered_, std::memory_order_relaxed);
  written_ += buffered_;
  buffered_ = 0;
  return Status::Ok();
}

Status IndexWriter::WriteRest() {
  // No key follows, so the last separator is the last key itself.
  CAIRN_RETURN_IF_ERROR(FinishDataBlock(info_.largest + '\0'));
  CAIRN_RETURN_IF_ERROR(FinishPartition());
  BlockHandle root;
  CAIRN_RETURN_IF_ERROR(WriteBlock(BlockKind::kRoot, root_.Finish(BlockKind::kRoot, {}), &root));
  info_.bytes = end_ + kTableAlignment;
  CAIRN_RETURN_IF_ERROR(AppendBytes(EncodeFooter(context_.store, info_, root)));
  CAIRN_RETURN_IF_ERROR(WriteBuffer());
  CAIRN_CHECK(written_ == info_.bytes);
  CAIRN_CHECK(taken_ == info_.bytes);
  return CAIRN_KEPT(kSyncIndex) ? file_->Sync() : Status::Ok();
}

Status IndexWriter::Publish() {
  file_.reset();
  CAIRN_RETURN_IF_ERROR(context_.files->Rename(temporary_path_, path_));
  if (!CAIRN_KEPT(kSyncDirectoryIndex)) return Status::Ok();
  return context_.files->SyncDirectory(context_.directory);
}

Result<TableInfo> IndexWriter::Finish() {
  CAIRN_CHECK(!finished_);
  CAIRN_CHECK(info_.records > 0);
  CAIRN_RETURN_IF_ERROR(status_);
  CAIRN_RETURN_IF_ERROR(Keep(WriteRest()));
  CAIRN_RETURN_IF_ERROR(Keep(Publish()));
  finished_ = true;
  return info_;
}

}  // namespace cairn::sstable
