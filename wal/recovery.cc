// SPDX-License-Identifier: Apache-2.0
//
// Recovers the acknowledged records from disk: the walk. recovery_evidence.cc judges places where
// the log does not continue as it should. The rules are in wal/FORMAT.md.
#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "wal/recovery_impl.h"
#include "wal/space_cushion.h"

namespace cairn::wal {

Status Recovery::Deliver(const std::vector<RecordView>& records) {
  CAIRN_CHECK(!refused_);
  for (const RecordView& record : records) {
    // Without holes, whatever the files hold.
    CAIRN_CHECK(record.sequence > delivered_);
    CAIRN_CHECK(delivered_ == 0 || record.sequence == delivered_ + 1);
    delivered_ = record.sequence;
    Status status = on_record_(record);
    refused_ = !status.ok();
    if (refused_) return status;
  }
  return Status::Ok();
}

// A valid footer says where every record lies, so the payload need not be read. False: there is no
// usable footer and the segment must be walked. No record is delivered before all of it was
// checked.
Result<bool> Recovery::ReplayFooter(Segment& segment, SegmentInfo& info, const KnownEnd& end) {
  CAIRN_CHECK(info.end_offset == kFirstGroupOffset);  // It was not begun.
  CAIRN_CHECK(info.last_sequence + 1 == segment.header.first_sequence);
  const auto trailer = segment.reader->ReadFooterTrailer(segment.header.epoch);
  if (!trailer.ok()) return trailer.status();
  if (!trailer->has_value() || (*trailer)->first_sequence != segment.header.first_sequence ||
      (*trailer)->last_sequence != end.last_sequence ||
      (!options_.following && end.last_sequence > stop_after_)) {
    return false;
  }
  const auto entries = segment.reader->ReadFooterEntries(**trailer);
  if (!entries.ok()) {
    if (entries.status().code() == StatusCode::kCorruption) return false;
    return entries.status();
  }
  std::vector<RecordView> records;
  std::span<const std::byte> rest = *entries;
  uint64_t sequence = segment.header.first_sequence;
  uint64_t end_offset = kFirstGroupOffset;
  uint64_t last_hash = 0;
  for (uint32_t g = 0; g < (*trailer)->group_count; ++g) {
    if (rest.size() < sizeof(FooterGroup)) return false;
    const auto group = LoadAs<FooterGroup>(rest.data());
    rest = rest.subspan(sizeof(FooterGroup));
    if (group.offset != end_offset || group.header.first_sequence != sequence) return false;
    for (uint32_t r = 0; r < group.header.record_count; ++r) {
      if (rest.size() < sizeof(FooterRecord)) return false;
      const auto entry = LoadAs<FooterRecord>(rest.data());
      rest = rest.subspan(sizeof(FooterRecord));
      if (CAIRN_KEPT(kBoundOfFooter) && entry.header_bytes > rest.size()) return false;
      if (entry.header_bytes % 8 != 0) return false;
      const Location location{info.number, info.epoch, entry.offset, 0};
      auto record = ParseRecord(rest.first(entry.header_bytes), location, options_.store);
      if (!record.ok() || record->sequence != sequence) return false;
      ++sequence;
      records.push_back(std::move(*record));
      rest = rest.subspan(entry.header_bytes);
    }
    end_offset = AlignUp(group.offset + group.header.length, kBlock);
    last_hash = group.header.hash;
  }
  if (!rest.empty() || sequence != end.last_sequence + 1 || end_offset != end.end_offset ||
      last_hash != end.last_hash) {
    return false;
  }
  CAIRN_RETURN_IF_ERROR(Deliver(records));
  info.last_sequence = end.last_sequence;
  info.end_offset = static_cast<uint32_t>(end_offset);
  log_.last_hash = last_hash;
  return true;
}

// How far the last segment itself proves that it is synced. Groups may be written out of order, so
// the first place without a valid group ends the look, whatever lies behind.
Status Recovery::LookAhead(Segment& segment, SegmentInfo info) {
  CAIRN_CHECK(options_.following);
  stop_after_ = std::max(stop_after_, segment.header.synced_upto);
  while (uint64_t{info.end_offset} + kBlock <= segment.reader->bytes()) {
    const auto read = segment.reader->ReadGroup(info.end_offset, info.epoch, info.last_sequence + 1,
                                                /*verify_payload=*/false);
    if (read.status().code() == StatusCode::kCorruption) return Status::Ok();
    if (!read.ok()) return read.status();
    const GroupHeader& header = (*read)->header;
    stop_after_ = std::max(stop_after_, header.synced_upto);
    info.last_sequence += header.record_count;
    info.end_offset =
        static_cast<uint32_t>(AlignUp(uint64_t{info.end_offset} + header.length, kBlock));
    CAIRN_CHECK(info.end_offset <= segment.reader->bytes());
  }
  return Status::Ok();
}

// False: its payload is damaged and it never was acknowledged, so the log ends before it.
Result<bool> Recovery::DeliverGroup(SegmentReader& reader, const SegmentReader::Group& group,
                                    const SegmentInfo& info) {
  CAIRN_CHECK(group.offset == info.end_offset);
  CAIRN_CHECK(group.header.first_sequence == info.last_sequence + 1);
  if (group.payload.ok()) {
    CAIRN_RETURN_IF_ERROR(Deliver(group.records));
    return true;
  }
  // Was it synced? Then these positions are damaged, and their reader will get that error; else the
  // group never was acknowledged and ends the log. SomethingSynced moves the window: read again.
  const Status payload = group.payload;
  const GroupHeader header = group.header;
  std::string where;
  CAIRN_ASSIGN_OR_RETURN(
      const bool synced,
      SomethingSynced(reader, AlignUp(uint64_t{info.end_offset} + header.length, kBlock),
                      info.number + 1, info.epoch, header.last_sequence(), &where));
  if (!synced) {
    log_.torn_tail = true;
    log_.torn_detail = payload.ToString();
    return false;
  }
  CAIRN_ASSIGN_OR_RETURN(const SegmentReader::Group* again,
                         reader.ReadGroup(info.end_offset, info.epoch, info.last_sequence + 1,
                                          /*verify_payload=*/false));
  CAIRN_RETURN_IF_ERROR(Deliver(again->records));
  return true;
}

// Group by group, up to the known end or as far as groups are valid.
Status Recovery::WalkSegment(Segment& segment, SegmentInfo& info,
                             const std::optional<KnownEnd>& end) {
  SegmentReader& reader = *segment.reader;
  CAIRN_CHECK(unproven_.empty());
  if (options_.following && !end) CAIRN_RETURN_IF_ERROR(LookAhead(segment, info));
  // A segment that another one follows was synced to its end.
  const uint64_t stop_after = options_.following && end ? UINT64_MAX : stop_after_;
  while (!end || info.end_offset < end->end_offset) {
    // Groups behind this may be half written, and prove nothing.
    if (info.last_sequence >= stop_after) {
      stopped_ = true;
      return Status::Ok();
    }
    if (uint64_t{info.end_offset} + kBlock > reader.bytes()) {
      const Status full(StatusCode::kCorruption,
                        At(reader.path(), info.end_offset) + "the segment ends here");
      return end ? full : EndLog(segment, info, full);
    }
    const auto read = reader.ReadGroup(info.end_offset, info.epoch, info.last_sequence + 1,
                                       /*verify_payload=*/!end.has_value() && !options_.following);
    if (!read.ok()) {
      if (read.status().code() != StatusCode::kCorruption || end) return read.status();
      return EndLog(segment, info, read.status());
    }
    const SegmentReader::Group& group = **read;
    const GroupHeader header = group.header;
    const uint64_t next_offset = AlignUp(uint64_t{info.end_offset} + header.length, kBlock);
    CAIRN_CHECK(header.epoch == info.epoch);
    CAIRN_CHECK(next_offset > info.end_offset);
    CAIRN_CHECK(next_offset <= reader.bytes());
    // A group is synced as a whole.
    if (!options_.following && header.record_count > 0 && header.last_sequence() > stop_after) {
      stopped_ = true;
      return Status::Ok();
    }
    const uint64_t group_offset = group.offset;
    CAIRN_ASSIGN_OR_RETURN(const bool goes_on, DeliverGroup(reader, group, info));
    if (!goes_on) return Status::Ok();
    if (!end) {
      while (!unproven_.empty() && unproven_.front().last_sequence <= header.synced_upto) {
        unproven_.pop_front();
      }
      unproven_.push_back({info.end_offset, header.first_sequence, header.last_sequence()});
    }
    info.last_sequence += header.record_count;
    info.end_offset = static_cast<uint32_t>(next_offset);
    log_.last_hash = header.hash;
    log_.last_sequence = info.last_sequence;
    if (header.flags == kGroupCleanEnd && !end) return CheckCleanEnd(segment, info, group_offset);
  }
  if (end && (info.end_offset != end->end_offset || info.last_sequence != end->last_sequence ||
              log_.last_hash != end->last_hash)) {
    return Status(StatusCode::kCorruption,
                  At(reader.path(), info.end_offset) + "ends with sequence " +
                      std::to_string(info.last_sequence) + ", the next segment follows sequence " +
                      std::to_string(end->last_sequence) + " at offset " +
                      std::to_string(end->end_offset));
  }
  return Status::Ok();
}

// The segment that continues `segment`, by its header; nothing when its file was never used as
// such. kCorruption when the header says that it continues another one.
Result<std::optional<Recovery::Segment>> Recovery::OpenSuccessor(const Segment& segment) {
  const uint64_t number = segment.header.segment + 1;
  if (!HasFile(number)) return std::optional<Segment>();
  Segment next;
  CAIRN_ASSIGN_OR_RETURN(next.reader,
                         SegmentReader::Open(world_, options_.directory, number, options_.store));
  const auto header = next.reader->ReadHeader();
  if (!header.ok()) {
    if (header.status().code() != StatusCode::kCorruption) return header.status();
    return std::optional<Segment>();
  }
  next.header = *header;
  max_epoch_ = std::max(max_epoch_, next.header.epoch);
  if (next.header.epoch < segment.header.epoch) return std::optional<Segment>();
  if (next.header.predecessor_segment != segment.header.segment ||
      next.header.predecessor_epoch != segment.header.epoch ||
      next.header.predecessor_last_sequence + 1 < segment.header.first_sequence ||
      next.header.predecessor_last_sequence + 1 != next.header.first_sequence) {
    return Status(StatusCode::kCorruption,
                  At(next.reader->path(), 0) + "continues segment " +
                      SegmentFileName(next.header.predecessor_segment) + " of epoch " +
                      std::to_string(next.header.predecessor_epoch) + ", found " +
                      segment.reader->path() + " of epoch " + std::to_string(segment.header.epoch));
  }
  return std::optional<Segment>(std::move(next));
}

Status Recovery::ReplaySegment(Segment& segment, const std::optional<KnownEnd>& end) {
  CAIRN_CHECK(!stopped_);
  CAIRN_CHECK(segment.reader->segment() == segment.header.segment);
  CAIRN_CHECK(segment.header.epoch <= max_epoch_);
  if (!log_.segments.empty()) {  // OpenSuccessor has found that it continues that one.
    const SegmentInfo& before = log_.segments.back();
    CAIRN_CHECK(before.number + 1 == segment.header.segment);
    CAIRN_CHECK(before.epoch <= segment.header.epoch);
    CAIRN_CHECK(before.last_sequence + 1 == segment.header.first_sequence);
  }
  SegmentInfo info{segment.header.segment,
                   segment.header.epoch,
                   kFirstGroupOffset,
                   segment.header.first_sequence,
                   segment.header.first_sequence - 1,
                   segment.reader->bytes()};
  unproven_.clear();
  if (CAIRN_KEPT(kLengthOfSegment) && end && segment.EndsEarly() &&
      segment.reader->bytes() < end->end_offset) {
    return WasCut(segment, "the next segment follows offset " + std::to_string(end->end_offset));
  }
  bool done = false;
  const LogPosition& from = options_.replay_from;
  const bool begins_within =
      BeginsWithin(segment.header) && (!end || from.offset <= end->end_offset);
  const bool whole = end && (options_.following || end->last_sequence <= stop_after_);
  if (whole && info.number < from.segment) {
    info.last_sequence = end->last_sequence;
    info.end_offset = static_cast<uint32_t>(end->end_offset);
    log_.last_hash = end->last_hash;
    done = true;
  } else if (end) {
    CAIRN_ASSIGN_OR_RETURN(done, ReplayFooter(segment, info, *end));
  }
  if (!done && begins_within) {
    info.last_sequence = from.last_sequence;
    info.end_offset = static_cast<uint32_t>(from.offset);
    log_.last_hash = from.last_hash;
  }
  Status status;
  if (!done) status = WalkSegment(segment, info, end);
  // Also on failure: salvage keeps what was replayed.
  log_.segments.push_back(info);
  log_.last_sequence = info.last_sequence;
  return status;
}

// Reads the header. False: it, or the first group, is damaged, and the log ends before them.
Result<bool> Recovery::BeginsWell(Segment& segment) {
  CAIRN_CHECK(log_.segments.empty());
  const auto header = segment.reader->ReadHeader();
  bool good = false;
  if (header.ok()) {
    segment.header = *header;
    max_epoch_ = std::max(max_epoch_, header->epoch);
    CAIRN_ASSIGN_OR_RETURN(good, FirstGroupIsGood(segment));
  } else if (header.status().code() != StatusCode::kCorruption) {
    return header.status();
  }
  if (!good) CAIRN_RETURN_IF_ERROR(EndBeforeFirstGroup(segment, header.status()));
  return good;
}

// False: it was begun and not acknowledged, so the log ends before it.
Result<bool> Recovery::GoesOnIn(Segment& next) {
  CAIRN_CHECK(!stopped_);
  CAIRN_CHECK(next.header.segment == log_.segments.back().number + 1);
  CAIRN_ASSIGN_OR_RETURN(const bool usable, FirstGroupIsGood(next));
  if (usable) return true;
  if (options_.following && next.header.first_sequence > stop_after_) return false;
  if (CAIRN_KEPT(kLengthOfSegment) && next.EndsEarly()) {
    return WasCut(next, "the first group is damaged");
  }
  // Header and first group are one write. One without the other is torn, unless more groups
  // followed.
  std::string where;
  CAIRN_ASSIGN_OR_RETURN(
      const bool synced,
      SomethingSynced(*next.reader, kFirstGroupOffset + kBlock, next.header.segment + 1,
                      next.header.epoch, next.header.first_sequence, &where));
  const std::string what =
      At(next.reader->path(), kFirstGroupOffset) + "the first group is damaged";
  if (synced) return Status(StatusCode::kCorruption, what + "; " + where);
  log_.torn_tail = true;
  log_.torn_detail = what;
  CAIRN_RETURN_IF_ERROR(CheckNothingIsMissing(next.header.segment + 1, nullptr));
  return false;
}

Status Recovery::Replay() {
  const uint64_t first = options_.first_segment;
  CAIRN_RETURN_IF_ERROR(CheckNothingIsMissing(first, nullptr));
  if (!HasFile(first)) {
    if (first == 1) return Status::Ok();  // A new log.
    return Status(StatusCode::kCorruption, SegmentPath(options_.directory, first) +
                                               ": offset 0: the first segment is missing");
  }
  Segment segment;
  CAIRN_ASSIGN_OR_RETURN(segment.reader,
                         SegmentReader::Open(world_, options_.directory, first, options_.store));
  CAIRN_ASSIGN_OR_RETURN(const bool good, BeginsWell(segment));
  if (!good) return Status::Ok();

  log_.last_hash = segment.header.predecessor_last_hash;  // Until it has a group of its own.
  while (!stopped_) {
    auto successor = OpenSuccessor(segment);
    if (!successor.ok()) {
      // Salvage keeps what lies before it, as far as possible without knowing its end.
      if (options_.salvage && successor.status().code() == StatusCode::kCorruption) {
        const Status kept = ReplaySegment(segment, std::nullopt);
        if (!kept.ok() && (refused_ || kept.code() != StatusCode::kCorruption)) return kept;
      }
      return successor.status();
    }
    std::optional<Segment> next = std::move(*successor);
    std::optional<KnownEnd> end;
    if (next) {
      end = {next->header.predecessor_last_sequence, next->header.predecessor_end_offset,
             next->header.predecessor_last_hash};
      // The successor's header is newer; a writer may have written groups after this segment was
      // opened.
      segment.reader->Forget();
    }
    CAIRN_RETURN_IF_ERROR(ReplaySegment(segment, end));
    if (stopped_ || (log_.last_sequence >= stop_after_ && (!options_.following || !next))) break;
    if (!next) return CheckNothingIsMissing(segment.header.segment + 1, &segment);
    CAIRN_ASSIGN_OR_RETURN(const bool goes_on, GoesOnIn(*next));
    if (!goes_on) break;
    segment = std::move(*next);
  }
  return Status::Ok();
}

// An epoch must never be used twice. Its first group is synced before anything follows it, so an
// epoch that left more than that has a header that is found here.
Status Recovery::FindNextEpoch() {
  for (const uint64_t number : directory_.segments) {
    if (!log_.segments.empty() && number <= log_.segments.back().number) continue;
    auto opened = SegmentReader::Open(world_, options_.directory, number, options_.store);
    if (!opened.ok()) {
      if (log_.repaired && opened.status().code() == StatusCode::kCorruption) continue;
      return opened.status();
    }
    const auto header = (*opened)->ReadHeader();
    if (header.ok()) max_epoch_ = std::max(max_epoch_, header->epoch);
    if (!header.ok() && header.status().code() != StatusCode::kCorruption) return header.status();
  }
  for (const SegmentInfo& segment : log_.segments) max_epoch_ = std::max(max_epoch_, segment.epoch);
  log_.next_epoch = max_epoch_ + 1;
  return Status::Ok();
}

// A disk that copies on write may be full; the store must open all the same.
Status Recovery::WriteAgain(io::File& file, uint64_t offset, std::span<const std::byte> bytes) {
  Status status = file.Write(offset, bytes, /*durable=*/false);
  while (status.code() == StatusCode::kNoSpace &&
         SpaceCushion::GiveUpOne(*world_.files, options_.directory)) {
    status = file.Write(offset, bytes, /*durable=*/false);
  }
  return status;
}

// After a failed sync the system may have pages that can be read but that no later sync writes. So
// groups that nothing proves to be synced are written once more, unchanged.
Status Recovery::WriteUnprovenAgain(io::File& file) {
  CAIRN_CHECK(!options_.read_only);
  if (unproven_.empty()) return Status::Ok();
  const SegmentInfo& segment = log_.segments.back();
  CAIRN_ASSIGN_OR_RETURN(const auto reader, SegmentReader::Open(world_, options_.directory,
                                                                segment.number, options_.store));
  if (unproven_.front().offset == kFirstGroupOffset) {
    CAIRN_RETURN_IF_ERROR(reader->ReadHeader().status());
    CAIRN_ASSIGN_OR_RETURN(const auto header, reader->Read(0, kBlock));
    CAIRN_RETURN_IF_ERROR(WriteAgain(file, 0, header));
  }
  for (const GroupPlace& place : unproven_) {
    CAIRN_CHECK(place.offset < segment.end_offset);
    CAIRN_ASSIGN_OR_RETURN(const SegmentReader::Group* group,
                           reader->ReadGroup(place.offset, segment.epoch, place.first_sequence,
                                             /*verify_payload=*/true));
    if (!group->payload.ok()) continue;  // Damaged, not lost: its reader gets the error.
    const uint64_t bytes = AlignUp(group->header.length, kBlock);
    CAIRN_ASSIGN_OR_RETURN(const auto blocks, reader->Read(place.offset, bytes));
    CAIRN_RETURN_IF_ERROR(WriteAgain(file, place.offset, blocks));
  }
  return Status::Ok();
}

// The bytes read may still be in a cache of the system or the device, and a new segment is about to
// continue from it.
Status Recovery::Sync() {
  if (options_.read_only || log_.segments.empty()) return Status::Ok();
  const std::string path = SegmentPath(options_.directory, log_.segments.back().number);
  CAIRN_ASSIGN_OR_RETURN(const auto file,
                         world_.files->Open(path, {.write = true, .direct = true}));
  if (CAIRN_KEPT(kWriteUnproven)) CAIRN_RETURN_IF_ERROR(WriteUnprovenAgain(*file));
  // A salvage may go on behind the end of a file that was cut, where a replay was to begin. The
  // next segment names that place, and a file that ends before what the next one names is refused.
  SegmentInfo& last = log_.segments.back();
  if (last.end_offset > last.file_bytes) {
    CAIRN_RETURN_IF_ERROR(file->Truncate(last.end_offset));
    last.file_bytes = last.end_offset;
  }
  if (CAIRN_KEPT(kSyncRecovered)) CAIRN_RETURN_IF_ERROR(file->Sync());
  if (!CAIRN_KEPT(kSyncDirectoryRecovered)) return Status::Ok();
  return world_.files->SyncDirectory(options_.directory);
}

Result<RecoveredLog> Recovery::Run() {
  CAIRN_ASSIGN_OR_RETURN(directory_, ListLogDirectory(*world_.files, options_.directory));
  const auto live = std::lower_bound(directory_.segments.begin(), directory_.segments.end(),
                                     options_.first_segment);
  directory_.segments.erase(directory_.segments.begin(), live);
  const Status status = Replay();
  if (!status.ok()) {
    const bool provable = !log_.segments.empty() || options_.first_segment == 1;
    if (!options_.salvage || refused_ || status.code() != StatusCode::kCorruption || !provable) {
      return status;
    }
    log_.repaired = true;
    log_.repaired_detail = std::string(status.message());
  }
  if (!options_.following) CAIRN_RETURN_IF_ERROR(FindNextEpoch());
  CAIRN_RETURN_IF_ERROR(Sync());
  CAIRN_CHECK(log_.last_sequence ==
              (log_.segments.empty() ? 0 : log_.segments.back().last_sequence));
  CAIRN_CHECK(delivered_ <= log_.last_sequence);
  return std::move(log_);
}

Result<RecoveredLog> Recover(io::World& world, const RecoveryOptions& options,
                             const std::function<Status(const RecordView&)>& on_record) {
  return Recovery(world, options, on_record).Run();
}

}  // namespace cairn::wal
