// SPDX-License-Identifier: Apache-2.0
//
// The reader of a segment of the log, on headers that say anything under hashes that fit: what it
// hands out lies inside of its group, and groups follow each other.
#include <memory>

#include "base/core/align.h"
#include "base/core/check.h"
#include "fuzz/input.h"
#include "fuzz/log_files.h"
#include "sim/world.h"
#include "wal/segment_reader.h"

using namespace cairn;
using namespace cairn::wal;

namespace {

constexpr uint64_t kSegment = 1;

void CheckGroup(const SegmentReader::Group& group) {
  uint64_t sequence = group.header.first_sequence;
  uint64_t at = group.offset + sizeof(GroupHeader);
  for (const RecordView& record : group.records) {
    CAIRN_CHECK(record.sequence == sequence++ && record.unit != 0 &&
                record.unit <= record.sequence);
    CAIRN_CHECK(record.location.offset == at);
    uint64_t sum = 0;
    for (const std::byte byte : record.fields) sum += static_cast<uint64_t>(byte);
    uint64_t end = RecordHeaderBytes(record.fields.size(), record.strip_count());
    for (size_t i = 0; i < record.strip_count(); ++i) {
      CAIRN_CHECK(record.strip_offset(i) >= end);
      end = uint64_t{record.strip_offset(i)} + record.strip(i).bytes;
    }
    CAIRN_CHECK(end <= record.location.bytes && sum <= 255 * record.fields.size());
    at += record.location.bytes;
  }
  CAIRN_CHECK(at == group.offset + uint64_t{group.header.length});
  CAIRN_CHECK(group.payload.ok() || group.payload.code() == StatusCode::kCorruption);
}

void CheckStatus(const Status& status) {
  CAIRN_CHECK(status.ok() || status.code() == StatusCode::kCorruption ||
              status.code() == StatusCode::kUnsupportedFormat ||
              status.code() == StatusCode::kInvalidArgument);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const std::unique_ptr<io::SimDisk> whole = fuzz::MakeLog();
  static const io::SimWorld machine = io::CrashWorld(*whole, io::CrashChoice::KeepAll());
  static fuzz::SegmentHeaders headers(*whole, kSegment);
  static io::World world = machine.world();
  static const auto opened = SegmentReader::Open(world, fuzz::kDirectory, kSegment, fuzz::kStore);
  CAIRN_CHECK(opened.ok());
  SegmentReader& reader = **opened;
  fuzz::Input input(data, bytes);
  const bool verify_payload = input.Take<uint8_t>() % 16 == 0;
  headers.Change(*machine.disk, input);
  reader.Forget();
  const auto header = reader.ReadHeader();
  CheckStatus(header.status());
  if (header.ok())
    CAIRN_CHECK(header->segment == kSegment && header->segment_bytes >= reader.bytes());
  CAIRN_CHECK(reader.HeaderLooksUnwritten().ok() && reader.NumberInHeader().ok());

  const uint64_t epoch = header.ok() ? header->epoch : 1;
  uint64_t sequence = header.ok() ? header->first_sequence : 1;
  uint64_t offset = kFirstGroupOffset;
  while (offset < reader.bytes()) {
    const auto group =
        reader.ReadGroup(static_cast<uint32_t>(offset), epoch, sequence, verify_payload);
    if (!group.ok()) {
      CheckStatus(group.status());
      break;
    }
    CheckGroup(**group);
    sequence += (*group)->header.record_count;
    offset = AlignUp(offset + (*group)->header.length, kBlock);
    CAIRN_CHECK(offset <= reader.bytes());
  }
  const auto found = reader.FindGroups(kFirstGroupOffset, reader.bytes(), epoch);
  CAIRN_CHECK(found.ok());
  const auto trailer = reader.ReadFooterTrailer(epoch);
  CAIRN_CHECK(trailer.ok());
  if (!trailer->has_value()) return 0;
  const auto entries = reader.ReadFooterEntries(**trailer);
  CheckStatus(entries.status());
  CAIRN_CHECK(!entries.ok() || entries->size() == (*trailer)->entries_bytes);
  return 0;
}
