// SPDX-License-Identifier: Apache-2.0
#include "sstable/snapshot_writer.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"

namespace cairn::sstable {

SnapshotWriter::SnapshotWriter(const TableContext& context, SnapshotKind kind, uint64_t number,
                               size_t write_bytes)
    : context_(context),
      buffer_bytes_(write_bytes),
      write_bytes_(write_bytes),
      next_write_bytes_(write_bytes),
      path_(SnapshotTablePath(context.directory, number)),
      temporary_path_(path_ + kUnfinishedSuffix) {
  footer_.info.number = number;
  footer_.info.kind = kind;
}

Result<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Create(const TableContext& context,
                                                               SnapshotKind kind, uint64_t number,
                                                               size_t write_bytes) {
  CAIRN_CHECK(context.callbacks != nullptr);
  CAIRN_CHECK(number != 0);
  CAIRN_CHECK(write_bytes > 0);
  CAIRN_CHECK(write_bytes % kTableAlignment == 0);
  std::unique_ptr<SnapshotWriter> writer(new SnapshotWriter(context, kind, number, write_bytes));
  for (Buffer& buffer : writer->buffers_) {
    buffer.memory = AlignedBuffer::TryAllocate(context.allocator, write_bytes, kTableAlignment);
    if (buffer.memory.empty()) {
      return Status(StatusCode::kOutOfMemory, "no memory to write " + writer->temporary_path_);
    }
  }
  CAIRN_ASSIGN_OR_RETURN(
      writer->file_,
      context.files->Open(writer->temporary_path_,
                          {.write = true, .create = true, .exclusive = true, .direct = true}));
  writer->created_ = true;
  writer->queue_ = context.files->NewQueue(kSnapshotWriteBuffers);
  return writer;
}

SnapshotWriter::~SnapshotWriter() {
  queue_.reset();
  if (finished_ || !created_) return;
  file_.reset();
  // A leftover file is removed as an orphan. After a failed sync of the directory the file has its
  // final name already.
  (void)io::RemoveIfExists(*context_.files, temporary_path_);
  (void)io::RemoveIfExists(*context_.files, path_);
  context_.callbacks->ReturnSpace(taken_);
}

Status SnapshotWriter::Keep(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return status_;
}

void SnapshotWriter::SetWriteBytes(size_t bytes) {
  CAIRN_CHECK(bytes > 0 && bytes <= buffer_bytes_ && bytes % kTableAlignment == 0);
  next_write_bytes_ = bytes;
  if (buffered_ == 0) write_bytes_ = bytes;
}

void SnapshotWriter::BeginFragment(const FragmentSpec& spec) {
  CAIRN_CHECK(!finished_);
  FragmentEntry entry{};
  entry.node = spec.node;
  entry.begin = spec.begin;
  entry.offset = end_;
  entry.lane = spec.lane;
  entry.count = spec.count;
  entry.page_rows = spec.page_rows;
  entry.slices = spec.slices;
  entry.flags = spec.flags;
  CAIRN_CHECK(spec.page_rows > 0);
  entry.pages = static_cast<uint32_t>((uint64_t{spec.count} + spec.page_rows - 1) / spec.page_rows);
  CAIRN_CHECK(entry.node != 0 && entry.pages > 0 && entry.slices > 0);
  CAIRN_CHECK((entry.flags & ~kApproximateFragment) == 0);
  if (!fragments_.empty()) {
    const FragmentEntry& last = fragments_.back();
    CAIRN_CHECK(!status_.ok() || last.frames() == frames_.size());
    CAIRN_CHECK(KeyOf(last) < KeyOf(entry));
    const bool same_lane = last.node == entry.node && last.lane == entry.lane;
    CAIRN_CHECK(!same_lane || last.end() <= entry.begin);
  }
  fragments_.push_back(entry);
  frames_.clear();
}

Status SnapshotWriter::AddFrame(std::span<const std::byte> stored, uint32_t raw_bytes) {
  CAIRN_CHECK(!finished_ && !fragments_.empty());
  CAIRN_CHECK(frames_.size() < fragments_.back().frames());
  CAIRN_CHECK(!stored.empty() && stored.size() <= kMaxStoredBytes && raw_bytes > 0);
  CAIRN_RETURN_IF_ERROR(status_);
  const uint64_t offset = end_;
  CAIRN_RETURN_IF_ERROR(Keep(AppendBytes(stored)));
  CAIRN_RETURN_IF_ERROR(Keep(Pad(kFrameAlignment)));
  frames_.push_back({.hash = PlacedHash(stored, context_.store, footer_.info.number, offset),
                     .offset = offset,
                     .stored_bytes = static_cast<uint32_t>(stored.size()),
                     .raw_bytes = raw_bytes});
  footer_.info.raw_bytes += raw_bytes;
  footer_.info.stored_bytes += stored.size();
  return frames_.size() < fragments_.back().frames() ? Status::Ok() : Keep(EndFragment());
}

Status SnapshotWriter::EndFragment() {
  FragmentEntry& fragment = fragments_.back();
  CAIRN_CHECK(frames_.size() == fragment.frames());
  const auto entries = std::as_bytes(std::span(frames_));
  fragment.entries_offset = end_;
  fragment.frames_hash = PlacedHash(entries, context_.store, footer_.info.number, end_);
  footer_.info.frames += frames_.size();
  CAIRN_RETURN_IF_ERROR(AppendBytes(entries));
  return Pad(kFrameAlignment);
}

Status SnapshotWriter::AppendBytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (buffered_ == write_bytes_) CAIRN_RETURN_IF_ERROR(SubmitBuffer());
    const size_t part = std::min(bytes.size(), write_bytes_ - buffered_);
    std::memcpy(buffers_[filling_].memory.data() + buffered_, bytes.data(), part);
    buffered_ += part;
    end_ += part;
    bytes = bytes.subspan(part);
  }
  CAIRN_CHECK(end_ == written_ + buffered_);
  return Status::Ok();
}

Status SnapshotWriter::Pad(uint32_t alignment) {
  static constexpr std::byte kZeros[kTableAlignment] = {};
  CAIRN_CHECK(alignment <= kTableAlignment);
  return AppendBytes({kZeros, AlignUp(end_, alignment) - end_});
}

Status SnapshotWriter::SubmitBuffer() {
  Buffer& buffer = buffers_[filling_];
  CAIRN_CHECK(buffered_ > 0);
  CAIRN_CHECK(buffered_ % kTableAlignment == 0);
  CAIRN_CHECK(!buffer.in_flight);
  CAIRN_CHECK(taken_ == written_);  // Nothing is written behind an error.
  CAIRN_RETURN_IF_ERROR(context_.callbacks->TakeSpace(buffered_));
  taken_ += buffered_;
  buffer.request = io::Request();
  buffer.request.kind = io::Request::Kind::kWrite;
  buffer.request.file = file_.get();
  buffer.request.data = buffer.memory.data();
  buffer.request.length = buffered_;
  buffer.request.offset = written_;
  buffer.request.owner = &buffer;
  buffer.in_flight = true;
  queue_->Submit(&buffer.request);
  context_.counters->written_bytes.fetch_add(buffered_, std::memory_order_relaxed);
  written_ += buffered_;
  buffered_ = 0;
  write_bytes_ = next_write_bytes_;
  filling_ = (filling_ + 1) % kSnapshotWriteBuffers;
  while (buffers_[filling_].in_flight) CAIRN_RETURN_IF_ERROR(Reap());
  return Status::Ok();
}

Status SnapshotWriter::Reap() {
  io::Request* request = queue_->Reap();
  static_cast<Buffer*>(request->owner)->in_flight = false;
  return std::move(request->status);
}

Status SnapshotWriter::WriteRest() {
  footer_.info.fragments = fragments_.size();
  footer_.fragments_offset = end_;
  for (const FragmentEntry& fragment : fragments_) CAIRN_CHECK(IsPossible(fragment, end_));
  const auto entries = std::as_bytes(std::span(fragments_));
  footer_.fragments_hash = PlacedHash(entries, context_.store, footer_.info.number, end_);
  CAIRN_RETURN_IF_ERROR(AppendBytes(entries));
  CAIRN_RETURN_IF_ERROR(Pad(kTableAlignment));
  footer_.info.bytes = end_ + kTableAlignment;
  const std::string block = EncodeSnapshotFooter(context_.store, footer_);
  CAIRN_RETURN_IF_ERROR(AppendBytes(std::as_bytes(std::span(block))));
  CAIRN_RETURN_IF_ERROR(SubmitBuffer());
  while (queue_->in_flight() > 0) CAIRN_RETURN_IF_ERROR(Reap());
  CAIRN_CHECK(written_ == footer_.info.bytes);
  CAIRN_CHECK(taken_ == footer_.info.bytes);
  return CAIRN_KEPT(kSyncSnapshot) ? file_->Sync() : Status::Ok();
}

Status SnapshotWriter::Publish() {
  queue_.reset();
  file_.reset();
  CAIRN_RETURN_IF_ERROR(context_.files->Rename(temporary_path_, path_));
  if (!CAIRN_KEPT(kSyncDirectorySnapshot)) return Status::Ok();
  return context_.files->SyncDirectory(context_.directory);
}

Result<SnapshotInfo> SnapshotWriter::Finish() {
  CAIRN_CHECK(!finished_);
  CAIRN_CHECK(!fragments_.empty());
  CAIRN_RETURN_IF_ERROR(status_);
  CAIRN_CHECK(fragments_.back().frames() == frames_.size());
  CAIRN_RETURN_IF_ERROR(Keep(WriteRest()));
  CAIRN_RETURN_IF_ERROR(Keep(Publish()));
  finished_ = true;
  return footer_.info;
}

}  // namespace cairn::sstable
