// SPDX-License-Identifier: Apache-2.0
#include "wal/log_copy.h"

#include <algorithm>
#include <optional>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "wal/constants.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {

namespace {

// What a close would write there: it proves that the log ends here, so the file may as well.
Status WriteCleanEnd(const LogCopy& copy, const SegmentInfo& segment, io::File& to,
                     std::span<std::byte> block) {
  GroupHeader header{};
  header.first_sequence = segment.last_sequence + 1;
  header.synced_upto = segment.last_sequence;
  header.epoch = segment.epoch;
  header.segment = segment.number;
  header.length = sizeof(GroupHeader);
  header.flags = kGroupCleanEnd;
  std::fill(block.begin(), block.end(), std::byte{0});
  EncodeGroupHeader(header, segment.end_offset, copy.store, block.data());
  CAIRN_RETURN_IF_ERROR(to.Write(segment.end_offset, block, /*durable=*/false));
  return copy.copied(block.size());
}

Status CopySegment(io::World& world, const LogCopy& copy, const SegmentInfo& segment, bool last,
                   std::span<std::byte> buffer) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader,
                         SegmentReader::Open(world, copy.from, segment.number, copy.store));
  CAIRN_ASSIGN_OR_RETURN(const auto to,
                         world.files->Open(SegmentPath(copy.to, segment.number),
                                           {.write = true, .create = true, .direct = true}));
  std::optional<FooterTrailer> trailer;
  bool has_room = false;  // For a clean end.
  if (last) {
    CAIRN_ASSIGN_OR_RETURN(const SegmentHeader header, reader->ReadHeader());
    has_room = uint64_t{segment.end_offset} + kBlock <= header.segment_bytes;
  } else {
    CAIRN_ASSIGN_OR_RETURN(trailer, reader->ReadFooterTrailer(segment.epoch));
  }
  CAIRN_CHECK(!last || segment.end_offset > kFirstGroupOffset);
  // A full file may become a spare of the copy, so it has all blocks: a log that runs out of space
  // within a segment is poisoned. A shorter one never becomes a spare.
  const uint64_t bytes =
      trailer.has_value()
          ? reader->bytes()
          : std::max(segment.end_offset + (has_room ? uint64_t{kBlock} : 0), kMinClosedBytes);
  CAIRN_RETURN_IF_ERROR(to->Allocate(0, bytes));
  CAIRN_RETURN_IF_ERROR(
      io::CopyRange(reader->file(), *to, 0, segment.end_offset, buffer, copy.copied));
  if (has_room) {
    CAIRN_RETURN_IF_ERROR(WriteCleanEnd(copy, segment, *to, buffer.first(kBlock)));
  }
  if (trailer.has_value()) {
    CAIRN_RETURN_IF_ERROR(io::CopyRange(reader->file(), *to, trailer->footer_offset,
                                        reader->bytes(), buffer, copy.copied));
  }
  return CAIRN_KEPT(kSyncLogCopy) ? to->Sync() : Status::Ok();
}

}  // namespace

uint64_t BytesOf(const LogCopy& copy) {
  uint64_t bytes = 0;
  for (const SegmentInfo& segment : copy.segments) bytes += segment.end_offset;
  return bytes + (copy.segments.empty() ? 0 : kBlock);
}

Status CopyLog(io::World& world, const LogCopy& copy) {
  CAIRN_CHECK(copy.to != copy.from);
  if (copy.segments.empty()) {
    CAIRN_RETURN_IF_ERROR(
        MakeSegmentFile(*world.files, SegmentPath(copy.to, 1), copy.segment_bytes, kBlock));
    return world.files->SyncDirectory(copy.to);
  }
  const AlignedBuffer buffer =
      AlignedBuffer::TryAllocate(copy.allocator, kReadBytes, io::kBlockBytes);
  if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "no memory to copy " + copy.from);
  for (const SegmentInfo& segment : copy.segments) {
    const bool last = &segment == &copy.segments.back();
    CAIRN_CHECK(last || (&segment + 1)->number == segment.number + 1);
    CAIRN_RETURN_IF_ERROR(CopySegment(world, copy, segment, last, buffer.span()));
  }
  if (!CAIRN_KEPT(kSyncDirectoryLogCopy)) return Status::Ok();
  return world.files->SyncDirectory(copy.to);
}

}  // namespace cairn::wal
