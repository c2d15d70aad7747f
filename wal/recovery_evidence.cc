// SPDX-License-Identifier: Apache-2.0
//
// Places where the log does not continue as it should: was something synced behind one? Then it is
// damaged; else the log ends there, and its content never was acknowledged.
#include "base/core/check.h"
#include "base/core/mutation.h"
#include "wal/recovery_impl.h"

namespace cairn::wal {

// Nothing follows a clean end in its epoch. But a newer epoch might, with a damaged header.
Status Recovery::CheckCleanEnd(const Segment& segment, const SegmentInfo& info,
                               uint64_t group_offset) {
  CAIRN_CHECK(group_offset < info.end_offset);
  if (CAIRN_KEPT(kLengthOfSegment) && segment.EndsEarly() &&
      info.end_offset != segment.reader->bytes()) {
    return WasCut(segment, "its clean end lies at offset " + std::to_string(group_offset));
  }
  std::string where;
  CAIRN_ASSIGN_OR_RETURN(const bool synced, FollowingHold(info.number + 1, info.epoch,
                                                          info.last_sequence + 1, &where));
  if (!synced) return Status::Ok();
  return Status(StatusCode::kCorruption, SegmentPath(options_.directory, info.number + 1) +
                                             ": offset 0: the segment header is damaged: " + where);
}

// For a segment that is shorter than its header says and does not end like a closed one.
Status Recovery::WasCut(const Segment& segment, const std::string& why) {
  CAIRN_CHECK(segment.EndsEarly());
  return Status(StatusCode::kCorruption,
                At(segment.reader->path(), 0) + "the file has " +
                    std::to_string(segment.reader->bytes()) + " bytes, its header says " +
                    std::to_string(segment.header.segment_bytes) + ": it was cut, " + why);
}

// Whether a walk that began at the file's very end (RecoveryOptions::replay_from) has the clean end
// right before it.
Result<bool> Recovery::EndsBehindCleanEnd(Segment& segment, const SegmentInfo& info) {
  CAIRN_CHECK(segment.EndsEarly());
  const uint64_t bytes = segment.reader->bytes();
  if (info.end_offset != bytes || bytes <= kFirstGroupOffset) return false;
  const auto last = segment.reader->ReadGroup(static_cast<uint32_t>(bytes - kBlock), info.epoch,
                                              info.last_sequence + 1, /*verify_payload=*/false);
  if (last.ok()) return (*last)->header.flags == kGroupCleanEnd;
  if (last.status().code() == StatusCode::kCorruption) return false;
  return last.status();
}

// The walk found something that is no group. Torn, if nothing later was built on it.
Status Recovery::EndLog(Segment& segment, const SegmentInfo& info, const Status& what_is_there) {
  CAIRN_CHECK(what_is_there.code() == StatusCode::kCorruption);
  CAIRN_CHECK(info.number == segment.header.segment);
  CAIRN_CHECK(info.epoch == segment.header.epoch);
  SegmentReader& reader = *segment.reader;
  if (CAIRN_KEPT(kLengthOfSegment) && segment.EndsEarly()) {
    CAIRN_ASSIGN_OR_RETURN(const bool closed, EndsBehindCleanEnd(segment, info));
    if (!closed) {
      return WasCut(segment,
                    "there is no clean end (" + std::string(what_is_there.message()) + ")");
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const auto groups,
                         reader.FindGroups(info.end_offset, reader.bytes(), info.epoch));
  std::string where;
  bool synced = SyncedIn(groups, info.last_sequence + 1, &where);
  if (!synced) {
    CAIRN_ASSIGN_OR_RETURN(
        synced, FollowingHold(info.number + 1, info.epoch, info.last_sequence + 1, &where));
  }
  if (synced) {
    return Status(StatusCode::kCorruption, std::string(what_is_there.message()) + "; " + where);
  }
  // Stale bytes or zeros are the regular end; a group of this epoch is one that was cut.
  if (!groups.empty()) {
    log_.torn_tail = true;
    log_.torn_detail = std::string(what_is_there.message());
  }
  return Status::Ok();
}

// Whether one of these groups proves that `sequence` had been synced when it was written.
bool Recovery::SyncedIn(const std::vector<GroupHeader>& groups, uint64_t sequence,
                        std::string* where) {
  for (const GroupHeader& group : groups) {
    max_epoch_ = std::max(max_epoch_, group.epoch);
    if (group.synced_upto < sequence) continue;
    *where = "a later group (sequence " + std::to_string(group.first_sequence) +
             ") says that everything up to " + std::to_string(group.synced_upto) + " was synced";
    return true;
  }
  return false;
}

// The same for everything from `begin` on, and for the segments from `following` on.
Result<bool> Recovery::SomethingSynced(SegmentReader& reader, uint64_t begin, uint64_t following,
                                       uint64_t epoch, uint64_t sequence, std::string* where) {
  CAIRN_CHECK(reader.segment() < following);
  CAIRN_ASSIGN_OR_RETURN(const auto groups, reader.FindGroups(begin, reader.bytes(), epoch));
  if (SyncedIn(groups, sequence, where)) return true;
  return FollowingHold(following, epoch, sequence, where);
}

// The same for whole segments, also for those whose header is damaged.
Result<bool> Recovery::FollowingHold(uint64_t segment, uint64_t epoch, uint64_t sequence,
                                     std::string* where) {
  CAIRN_CHECK(segment != 0);
  for (; HasFile(segment); ++segment) {
    auto opened = SegmentReader::Open(world_, options_.directory, segment, options_.store);
    if (!opened.ok()) return opened.status();
    SegmentReader& reader = **opened;
    const auto header = reader.ReadHeader();
    uint64_t look_bytes = reader.bytes();
    if (header.ok()) {
      max_epoch_ = std::max(max_epoch_, header->epoch);
      if (header->epoch < epoch) continue;  // Left behind by an earlier epoch.
      if (header->synced_upto >= sequence) {
        *where = reader.path() + " says that everything up to " +
                 std::to_string(header->synced_upto) + " was synced";
        return true;
      }
    } else if (header.status().code() != StatusCode::kCorruption) {
      return header.status();
    } else {
      CAIRN_ASSIGN_OR_RETURN(const bool unwritten, reader.HeaderLooksUnwritten());
      if (unwritten) look_bytes = kUnwrittenLookBytes;
    }
    CAIRN_ASSIGN_OR_RETURN(const auto groups,
                           reader.FindGroups(kFirstGroupOffset, look_bytes, epoch));
    if (SyncedIn(groups, sequence, where)) {
      *where = reader.path() + ": " + *where;
      return true;
    }
  }
  return false;
}

Result<bool> Recovery::FirstGroupIsGood(Segment& segment) {
  // It was durable.
  if (segment.header.segment < options_.replay_from.segment || BeginsWithin(segment.header)) {
    return true;
  }
  const auto group =
      segment.reader->ReadGroup(kFirstGroupOffset, segment.header.epoch,
                                segment.header.first_sequence, /*verify_payload=*/false);
  if (group.ok() && (*group)->header.hash == segment.header.first_group_hash) return true;
  if (!group.ok() && group.status().code() != StatusCode::kCorruption) return group.status();
  return EndedEmpty(segment);
}

// Whether the log went on after this segment without any group of it, whatever its bytes are: a
// torn group, or zeros in a copy of the log.
Result<bool> Recovery::EndedEmpty(const Segment& segment) {
  const auto next = OpenSuccessor(segment);
  if (next.status().code() == StatusCode::kCorruption) return false;
  CAIRN_RETURN_IF_ERROR(next.status());
  return next->has_value() && (*next)->header.predecessor_end_offset == kFirstGroupOffset;
}

// Segment `missing` is absent or was never used: is that the end of the log? A segment is used only
// when its directory entry and those of all before it are synced, and these segments themselves. So
// a later used one proves a loss; a later one that was merely prepared may have survived a crash
// alone.
Status Recovery::CheckNothingIsMissing(uint64_t missing, Segment* last) {
  CAIRN_CHECK(last == nullptr || last->header.segment + 1 == missing);
  const std::string path = SegmentPath(options_.directory, missing);
  const bool there = HasFile(missing);
  // A writer may have continued since a follower looked there.
  if (there && (last == nullptr || options_.following)) return Status::Ok();
  for (const uint64_t number : directory_.segments) {
    if (number < missing || (there && number == missing)) continue;
    CAIRN_ASSIGN_OR_RETURN(const auto later,
                           SegmentReader::Open(world_, options_.directory, number, options_.store));
    const auto header = later->ReadHeader();
    if (header.ok() && there && header->epoch < last->header.epoch) continue;
    if (header.ok()) {
      return Status(StatusCode::kCorruption,
                    path + ": offset 0: the " +
                        (there ? "segment header is damaged" : "file is missing") + ", but " +
                        later->path() + " was used");
    }
    if (header.status().code() != StatusCode::kCorruption) return header.status();
  }
  if (there || last == nullptr) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(const auto trailer, last->reader->ReadFooterTrailer(last->header.epoch));
  if (trailer.has_value()) {
    return Status(StatusCode::kCorruption, path + ": offset 0: the file is missing, but " +
                                               last->reader->path() +
                                               " was full and synced when its footer was written");
  }
  return Status::Ok();
}

// Ok: nothing was ever acknowledged here.
Status Recovery::EndBeforeFirstGroup(Segment& segment, const Status& header) {
  CAIRN_CHECK(log_.segments.empty());
  CAIRN_CHECK(header.ok() || header.code() == StatusCode::kCorruption);
  if (header.ok() && CAIRN_KEPT(kLengthOfSegment) && segment.EndsEarly()) {
    return WasCut(segment, "the first group is damaged");
  }
  const Status why =
      header.ok() ? Status(StatusCode::kCorruption, At(segment.reader->path(), kFirstGroupOffset) +
                                                        "the first group is damaged")
                  : header;
  const uint64_t first = options_.first_segment;
  if (first != 1) return why;
  // The first segment is made of zeros: a file with another segment's header was put here.
  CAIRN_ASSIGN_OR_RETURN(const uint64_t claimed, segment.reader->NumberInHeader());
  if (claimed > 1) {
    return Status(
        StatusCode::kCorruption,
        At(segment.reader->path(), 0) + "the file holds segment " + SegmentFileName(claimed));
  }
  std::string where;
  CAIRN_ASSIGN_OR_RETURN(const bool synced, FollowingHold(first, 0, 1, &where));
  if (synced) return Status(StatusCode::kCorruption, std::string(why.message()) + "; " + where);
  return Status::Ok();
}

}  // namespace cairn::wal
