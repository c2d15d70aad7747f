// SPDX-License-Identifier: Apache-2.0
#include "wal/resting_segment.h"

#include <utility>

#include "base/core/align.h"
#include "base/io/file_util.h"
#include "wal/segment_reader.h"

namespace cairn::wal {

Status CheckRestingSegment(io::World& world, const std::string& directory, const StoreId& store,
                           const RestingSegment& segment, bool payload,
                           const std::function<Status(const RecordView&)>& on_record) {
  auto opened = SegmentReader::Open(world, directory, segment.number, store);
  if (!opened.ok()) return io::MissingIsCorruption(opened.status());
  SegmentReader& reader = **opened;
  CAIRN_ASSIGN_OR_RETURN(const SegmentHeader header, reader.ReadHeader());
  if (reader.bytes() < header.segment_bytes) {
    return Status(StatusCode::kCorruption,
                  At(reader.path(), reader.bytes()) + "the file is shorter than its header says");
  }
  Status damaged;
  uint64_t sequence = header.first_sequence;
  uint64_t offset = kFirstGroupOffset;
  while (offset < segment.end_offset) {
    CAIRN_ASSIGN_OR_RETURN(
        const SegmentReader::Group* const group,
        reader.ReadGroup(static_cast<uint32_t>(offset), header.epoch, sequence, payload));
    if (damaged.ok()) damaged = group->payload;
    for (const RecordView& record : group->records) CAIRN_RETURN_IF_ERROR(on_record(record));
    sequence += group->header.record_count;
    offset = AlignUp(offset + group->header.length, kBlock);
  }
  if (offset != segment.end_offset) {
    return Status(StatusCode::kCorruption, At(reader.path(), segment.end_offset) +
                                               "MANIFEST says that it ends here, and it does not");
  }
  return damaged;
}

}  // namespace cairn::wal
