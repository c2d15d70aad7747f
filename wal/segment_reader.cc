// SPDX-License-Identifier: Apache-2.0
#include "wal/segment_reader.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "wal/segment_files.h"

namespace cairn::wal {

Status SegmentReader::Bad(uint64_t offset, const std::string& what) const {
  return Status(StatusCode::kCorruption, At(path_, offset) + what);
}

Result<std::unique_ptr<SegmentReader>> SegmentReader::Open(io::World& world,
                                                           const std::string& directory,
                                                           uint64_t segment, const StoreId& store) {
  std::unique_ptr<SegmentReader> reader(
      new SegmentReader(SegmentPath(directory, segment), segment, store));
  CAIRN_ASSIGN_OR_RETURN(reader->file_, world.files->Open(reader->path_, {.direct = true}));
  CAIRN_ASSIGN_OR_RETURN(reader->bytes_, reader->file_->Size());
  if (reader->bytes_ < kMinClosedBytes || reader->bytes_ % kBlock != 0) {
    return reader->Bad(0, "the file has " + std::to_string(reader->bytes_) +
                              " bytes, which no segment has: it was cut");
  }
  return reader;
}

Result<std::span<const std::byte>> SegmentReader::Read(uint64_t offset, uint64_t bytes,
                                                       uint64_t ahead) {
  if (offset + bytes > bytes_) return Bad(offset, "passes the end of the file");
  if (offset < window_begin_ || offset + bytes > window_end_) {
    const uint64_t begin = offset & ~uint64_t{kBlock - 1};
    const uint64_t length = std::min<uint64_t>(
        bytes_ - begin,
        std::max<uint64_t>(AlignUp(ahead, kBlock), AlignUp(offset + bytes - begin, kBlock)));
    if (window_.size() < length) {
      window_ =
          AlignedBuffer::TryAllocate(Allocator::Default(), static_cast<size_t>(length), kBlock);
      if (window_.empty()) {
        return Status(StatusCode::kOutOfMemory,
                      "no memory to read " + std::to_string(length) + " bytes of " + path_);
      }
    }
    window_begin_ = window_end_ = 0;
    const Status read = file_->Read(begin, window_.span().first(static_cast<size_t>(length)));
    if (!read.ok()) {
      CAIRN_ASSIGN_OR_RETURN(const bool shorter, BecameShorter());
      return shorter ? Read(offset, bytes, ahead) : read;
    }
    window_begin_ = begin;
    window_end_ = begin + length;
  }
  CAIRN_CHECK(offset >= window_begin_);
  CAIRN_CHECK(offset + bytes <= window_end_);
  CAIRN_CHECK(window_end_ - window_begin_ <= window_.size());
  return std::span<const std::byte>(window_.data() + (offset - window_begin_),
                                    static_cast<size_t>(bytes));
}

// A writer that closes the log cuts its unwritten end, possibly while the file is being read.
Result<bool> SegmentReader::BecameShorter() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, file_->Size());
  if (bytes >= bytes_ || bytes < kMinClosedBytes || bytes % kBlock != 0) return false;
  bytes_ = bytes;
  return true;
}

Result<SegmentHeader> SegmentReader::ReadHeader() {
  CAIRN_ASSIGN_OR_RETURN(const auto block, Read(0, kBlock, 2 * kBlock));
  Result<SegmentHeader> header = ParseSegmentHeader(block, segment_, store_);
  if (!header.ok()) {
    const auto claimed = LoadAs<SegmentHeader>(block.data());
    if (claimed.store != store_ && ParseSegmentHeader(block, segment_, claimed.store).ok()) {
      return Status(StatusCode::kInvalidArgument, At(path_, 0) + "a segment of another store");
    }
    return header.status().WithContext(path_ + ": offset 0");
  }
  if (CAIRN_KEPT(kLengthOfSegment) && header->segment_bytes < bytes_) {
    return Bad(0, "the file has " + std::to_string(bytes_) + " bytes, its header says " +
                      std::to_string(header->segment_bytes));
  }
  return header;
}

Result<bool> SegmentReader::HeaderLooksUnwritten() {
  CAIRN_ASSIGN_OR_RETURN(const auto block, Read(0, kBlock, 2 * kBlock));
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  if (std::all_of(block.begin(), block.end(), is_zero)) return true;
  const auto claimed = LoadAs<SegmentHeader>(block.data());
  return ParseSegmentHeader(block, claimed.segment, store_).ok();
}

Result<uint64_t> SegmentReader::NumberInHeader() {
  CAIRN_ASSIGN_OR_RETURN(const auto block, Read(0, kBlock, 2 * kBlock));
  const auto claimed = LoadAs<SegmentHeader>(block.data());
  return ParseSegmentHeader(block, claimed.segment, store_).ok() ? claimed.segment : 0;
}

Result<const SegmentReader::Group*> SegmentReader::ReadGroup(uint32_t offset, uint64_t epoch,
                                                             uint64_t first_sequence,
                                                             bool verify_payload) {
  CAIRN_ASSIGN_OR_RETURN(auto bytes, Read(offset, sizeof(GroupHeader)));
  const std::optional<GroupHeader> header = ParseGroupHeader(bytes, segment_, offset, store_);
  if (!header || header->epoch != epoch) return Bad(offset, "no group of this epoch");
  if (header->first_sequence != first_sequence) {
    return Bad(offset, "a group from sequence " + std::to_string(header->first_sequence) +
                           ", expected " + std::to_string(first_sequence));
  }
  CAIRN_ASSIGN_OR_RETURN(bytes, Read(offset, header->length));
  group_.header = *header;
  group_.offset = offset;
  group_.records.clear();
  group_.payload = Status::Ok();
  uint64_t records_hash = 0;
  uint32_t at = sizeof(GroupHeader);
  for (uint32_t i = 0; i < header->record_count; ++i) {
    const Location location{segment_, epoch, offset + at, 0};
    const auto record = bytes.subspan(at);
    CAIRN_ASSIGN_OR_RETURN(const RecordView view, ParseRecord(record, location, store_));
    if (view.location.bytes > record.size() || view.sequence != first_sequence + i) {
      return Bad(location.offset,
                 "record " + std::to_string(view.sequence) + " does not fit into its group");
    }
    records_hash = FoldRecordHash(records_hash, LoadAs<uint64_t>(record.data()));
    for (size_t s = 0; verify_payload && s < view.strip_count() && group_.payload.ok(); ++s) {
      group_.payload = view.VerifyStrip(record, s, store_);
    }
    group_.records.push_back(view);
    at += view.location.bytes;
    CAIRN_CHECK(at <= header->length);
  }
  if ((CAIRN_KEPT(kLengthOfGroup) && at != header->length) ||
      (CAIRN_KEPT(kHashOfRecords) && records_hash != header->records_hash)) {
    return Bad(offset, "the group does not hold the records that its header names");
  }
  CAIRN_CHECK(group_.records.size() == group_.header.record_count);
  return &group_;
}

Result<std::vector<GroupHeader>> SegmentReader::FindGroups(uint64_t begin, uint64_t end,
                                                           uint64_t min_epoch) {
  std::vector<GroupHeader> found;
  for (uint64_t offset = begin; offset < std::min(end, bytes_); offset += kBlock) {
    CAIRN_ASSIGN_OR_RETURN(const auto bytes, Read(offset, sizeof(GroupHeader)));
    const auto header = ParseGroupHeader(bytes, segment_, static_cast<uint32_t>(offset), store_);
    if (header && header->epoch >= min_epoch) found.push_back(*header);
  }
  return found;
}

Result<std::optional<FooterTrailer>> SegmentReader::ReadFooterTrailer(uint64_t epoch) {
  CAIRN_ASSIGN_OR_RETURN(const auto bytes,
                         Read(bytes_ - sizeof(FooterTrailer), sizeof(FooterTrailer), kBlock));
  return ParseFooterTrailer(bytes, segment_, epoch, bytes_, store_);
}

Result<std::span<const std::byte>> SegmentReader::ReadFooterEntries(const FooterTrailer& trailer) {
  CAIRN_ASSIGN_OR_RETURN(const auto entries,
                         Read(trailer.footer_offset, trailer.entries_bytes, trailer.entries_bytes));
  if (CAIRN_KEPT(kHashOfFooterEntries) && Hash(entries) != trailer.entries_hash) {
    return Bad(trailer.footer_offset, "the footer does not fit its hash");
  }
  return entries;
}

}  // namespace cairn::wal
