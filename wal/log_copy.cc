// SPDX-License-Identifier: Apache-2.0
#include "wal/log_copy.h"

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/io/file_util.h"
#include "wal/constants.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {

namespace {

Status CopySegment(io::World& world, const LogCopy& copy, const SegmentInfo& segment, bool last,
                   std::span<std::byte> buffer) {
  CAIRN_ASSIGN_OR_RETURN(const auto reader,
                         SegmentReader::Open(world, copy.from, segment.number, copy.store));
  CAIRN_ASSIGN_OR_RETURN(const auto to,
                         world.files->Open(SegmentPath(copy.to, segment.number),
                                           {.write = true, .create = true, .direct = true}));
  // All blocks, although some stay unwritten: the file may become a spare of the copy, and a log
  // that runs out of space within a segment is poisoned. In the last segment also those that a
  // close has cut, since the clean end, which would mark the cut, may lie behind the copied part.
  uint64_t bytes = reader->bytes();
  if (last) {
    CAIRN_ASSIGN_OR_RETURN(const SegmentHeader header, reader->ReadHeader());
    bytes = header.segment_bytes;
  }
  CAIRN_RETURN_IF_ERROR(to->Allocate(0, bytes));
  CAIRN_RETURN_IF_ERROR(
      io::CopyRange(reader->file(), *to, 0, segment.end_offset, buffer, copy.copied));
  if (!last) {
    CAIRN_ASSIGN_OR_RETURN(const auto trailer, reader->ReadFooterTrailer(segment.epoch));
    if (trailer.has_value()) {
      CAIRN_RETURN_IF_ERROR(io::CopyRange(reader->file(), *to, trailer->footer_offset,
                                          reader->bytes(), buffer, copy.copied));
    }
  }
  return CAIRN_KEPT(kSyncLogCopy) ? to->Sync() : Status::Ok();
}

}  // namespace

uint64_t BytesOf(const LogCopy& copy) {
  uint64_t bytes = 0;
  for (const SegmentInfo& segment : copy.segments) bytes += segment.end_offset;
  return bytes;
}

Status CopyLog(io::World& world, const LogCopy& copy) {
  CAIRN_CHECK(copy.to != copy.from);
  if (copy.segments.empty()) {
    CAIRN_RETURN_IF_ERROR(
        MakeSegmentFile(*world.files, SegmentPath(copy.to, 1), copy.segment_bytes,
                        FirstAllocatedBytes(copy.segment_bytes)));
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
