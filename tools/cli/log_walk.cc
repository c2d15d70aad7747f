// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/log_walk.h"

#include <memory>
#include <optional>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/io/path.h"
#include "engine/manifest/manifest.h"
#include "wal/segment_files.h"

namespace cairn::cli {

using wal::GroupHeader;
using wal::kBlock;
using wal::SegmentHeader;
using wal::SegmentReader;

namespace {

// The walk through one segment.
class SegmentWalk {
 public:
  SegmentWalk(SegmentReader* reader, LogVisitor* visitor) : reader_(*reader), visitor_(visitor) {}

  // `next`: the header of the segment that follows, if it has one. `newest_epoch`: of the segments
  // before.
  Status Run(const std::optional<SegmentHeader>& next, uint64_t* newest_epoch) {
    const auto header = reader_.ReadHeader();
    if (header.ok()) {
      if (header->epoch < *newest_epoch) {
        return Stop(LogStop::Kind::kVoid, 0, "left over from before a recovery");
      }
      epoch_ = header->epoch;
      sequence_ = header->first_sequence;
      visitor_->OnSegment(reader_, *header);
    } else {
      CAIRN_ASSIGN_OR_RETURN(const bool readable, FindEpoch(header.status(), *newest_epoch));
      if (!readable) return Status::Ok();
    }
    *newest_epoch = epoch_;
    CAIRN_RETURN_IF_ERROR(FindLimit(next));
    return WalkGroups();
  }

 private:
  Status Stop(LogStop::Kind kind, uint64_t offset, const std::string& what) {
    LogStop stop;
    stop.kind = kind;
    stop.path = reader_.path();
    stop.segment = reader_.segment();
    stop.offset = offset;
    stop.what = what;
    visitor_->OnStop(stop);
    return Status::Ok();
  }

  // The segment's header cannot be read: its first surviving group shows which epoch this is. False
  // when there is nothing to walk.
  Result<bool> FindEpoch(const Status& why, uint64_t newest_epoch) {
    const bool foreign = why.code() == StatusCode::kInvalidArgument;  // Another store's.
    if (why.code() != StatusCode::kCorruption && why.code() != StatusCode::kUnsupportedFormat &&
        !foreign) {
      return why;
    }
    if (why.code() == StatusCode::kCorruption) {
      CAIRN_ASSIGN_OR_RETURN(const bool unwritten, reader_.HeaderLooksUnwritten());
      if (unwritten) {
        CAIRN_RETURN_IF_ERROR(Stop(LogStop::Kind::kEnd, 0, "prepared, nothing written yet"));
        return false;
      }
    }
    LogStop stop;
    stop.kind = LogStop::Kind::kDamaged;
    stop.path = reader_.path();
    stop.segment = reader_.segment();
    stop.what = why.message();
    if (why.code() == StatusCode::kCorruption) {
      CAIRN_ASSIGN_OR_RETURN(const auto found, FindGroup(wal::kFirstGroupOffset, newest_epoch));
      if (found) {
        stop.resumes_at = found->offset;
        epoch_ = found->header.epoch;
        sequence_ = found->header.first_sequence;
      }
    }
    visitor_->OnStop(stop);
    return stop.resumes_at != 0;
  }

  // Behind the end that the next segment names lies only what a recovery cut off; a full segment
  // ends at its footer.
  Status FindLimit(const std::optional<SegmentHeader>& next) {
    limit_ = reader_.bytes();
    continued_ = next && next->predecessor_segment == reader_.segment() &&
                 next->predecessor_epoch == epoch_ && next->predecessor_end_offset <= limit_;
    if (continued_) {
      limit_ = next->predecessor_end_offset;
      last_sequence_ = next->predecessor_last_sequence;
      return Status::Ok();
    }
    CAIRN_ASSIGN_OR_RETURN(const auto footer, reader_.ReadFooterTrailer(epoch_));
    if (footer) {
      limit_ = footer->footer_offset;
      last_sequence_ = footer->last_sequence;
    }
    return Status::Ok();
  }

  Status WalkGroups() {
    uint64_t offset = wal::kFirstGroupOffset;
    while (offset + kBlock <= limit_) {
      CAIRN_ASSIGN_OR_RETURN(const std::optional<GroupHeader> header, HeaderAt(offset, epoch_));
      Status why(StatusCode::kCorruption, "no group of this epoch");
      if (header && header->epoch == epoch_) {
        const auto group = reader_.ReadGroup(static_cast<uint32_t>(offset), epoch_,
                                             header->first_sequence, /*verify_payload=*/false);
        if (group.ok()) {
          visitor_->OnGroup(**group);
          sequence_ = header->first_sequence + header->record_count;
          offset = AlignUp(offset + header->length, kBlock);
          if (header->flags == wal::kGroupCleanEnd) {
            return Stop(LogStop::Kind::kEnd, offset, "closed in order");
          }
          continue;
        }
        why = group.status();
        if (why.code() != StatusCode::kCorruption) return why;
      }
      CAIRN_ASSIGN_OR_RETURN(offset, StepOver(offset, header.has_value(), why));
      if (offset == 0) return Status::Ok();
    }
    return Stop(LogStop::Kind::kEnd, offset,
                continued_ ? "the next segment follows" : "the segment is full");
  }

  // Reports what is wrong at `offset`. Where the next group is, or 0.
  Result<uint64_t> StepOver(uint64_t offset, bool has_header, const Status& why) {
    LogStop stop;
    stop.path = reader_.path();
    stop.segment = reader_.segment();
    stop.offset = offset;
    stop.what = why.message();
    CAIRN_ASSIGN_OR_RETURN(const auto found, FindGroup(offset + kBlock, epoch_));
    if (found) {
      stop.kind = LogStop::Kind::kDamaged;
      stop.resumes_at = found->offset;
      stop.lost_first = sequence_;
      stop.lost_last = found->header.first_sequence - 1;
      sequence_ = found->header.first_sequence;
    } else if (last_sequence_ >= sequence_) {
      stop.kind = LogStop::Kind::kDamaged;
      stop.lost_first = sequence_;
      stop.lost_last = last_sequence_;
    } else if (has_header) {
      stop.kind = LogStop::Kind::kTorn;
    } else {
      stop.what = "nothing more was written";
    }
    visitor_->OnStop(stop);
    return stop.resumes_at;
  }

  Result<std::optional<GroupHeader>> HeaderAt(uint64_t offset, uint64_t min_epoch) {
    CAIRN_ASSIGN_OR_RETURN(const auto found,
                           reader_.FindGroups(offset, offset + kBlock, min_epoch));
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  struct Found {
    uint64_t offset;
    GroupHeader header;
  };
  Result<std::optional<Found>> FindGroup(uint64_t offset, uint64_t min_epoch) {
    const uint64_t end = limit_ == 0 ? reader_.bytes() : limit_;
    for (; offset + kBlock <= end; offset += kBlock) {
      CAIRN_ASSIGN_OR_RETURN(const std::optional<GroupHeader> header, HeaderAt(offset, min_epoch));
      const bool fits =
          header && (epoch_ == 0 || header->epoch == epoch_) && header->first_sequence >= sequence_;
      if (fits) return std::optional(Found{offset, *header});
    }
    return std::optional<Found>();
  }

  SegmentReader& reader_;
  LogVisitor* const visitor_;
  uint64_t epoch_ = 0;
  uint64_t sequence_ = 0;       // Expected next.
  uint64_t limit_ = 0;          // Groups lie below it; 0: not known yet.
  uint64_t last_sequence_ = 0;  // The segment's, if known; else 0.
  bool continued_ = false;
};

Status MissingFile(const std::string& directory, uint64_t segment, LogVisitor* visitor) {
  LogStop stop;
  stop.kind = LogStop::Kind::kDamaged;
  stop.path = wal::SegmentPath(directory, segment);
  stop.segment = segment;
  stop.what = "the file is missing";
  visitor->OnStop(stop);
  return Status::Ok();
}

std::optional<SegmentHeader> HeaderOf(io::World& world, const LogPlace& place, uint64_t segment) {
  auto reader = SegmentReader::Open(world, place.directory, segment, place.store);
  if (!reader.ok()) return std::nullopt;
  const auto header = (*reader)->ReadHeader();
  return header.ok() ? std::optional(*header) : std::nullopt;
}

// A segment header says of which store it is, and its hash says whether to believe it.
std::optional<SegmentHeader> ReadHeaderOfAnyStore(io::World& world, const std::string& path,
                                                  uint64_t segment) {
  const auto file = world.files->Open(path, {});
  const AlignedBuffer block =
      AlignedBuffer::TryAllocate(Allocator::Default(), kBlock, io::kBlockBytes);
  if (!file.ok() || block.empty() || !(*file)->Read(0, block.span()).ok()) return std::nullopt;
  const auto claimed = wal::LoadAs<SegmentHeader>(block.data());
  const auto header = wal::ParseSegmentHeader(block.span(), segment, claimed.store);
  return header.ok() ? std::optional(*header) : std::nullopt;
}

}  // namespace

const char* StopName(LogStop::Kind kind) {
  switch (kind) {
    case LogStop::Kind::kEnd: return "end";
    case LogStop::Kind::kTorn: return "torn";
    case LogStop::Kind::kDamaged: return "damaged";
    case LogStop::Kind::kVoid: return "void";
  }
  return "unknown";
}

Result<LogPlace> FindLog(io::World& world, const std::string& store, std::string* note) {
  LogPlace place;
  place.directory = io::JoinPath(store, "log");
  const auto manifest = engine::ReadManifest(*world.files, store);
  if (manifest.ok()) {
    place.store = manifest->store;
    place.first_segment = manifest->log_start_segment;
    return place;
  }
  CAIRN_ASSIGN_OR_RETURN(const wal::LogDirectory files,
                         wal::ListLogDirectory(*world.files, place.directory));
  for (const uint64_t segment : files.segments) {
    const auto header =
        ReadHeaderOfAnyStore(world, wal::SegmentPath(place.directory, segment), segment);
    if (!header) continue;
    place.store = header->store;
    place.first_segment = files.segments.front();
    *note = manifest.status().ToString() + "; the store's id is taken from " +
            wal::SegmentFileName(segment);
    return place;
  }
  return manifest.status();
}

Status WalkLog(io::World& world, const LogPlace& place, LogVisitor* visitor) {
  CAIRN_ASSIGN_OR_RETURN(const wal::LogDirectory files,
                         wal::ListLogDirectory(*world.files, place.directory));
  uint64_t expected = place.first_segment;
  uint64_t newest_epoch = 0;
  for (const uint64_t segment : files.segments) {
    if (segment < place.first_segment) continue;  // Released; will be removed or reused.
    for (; expected < segment; ++expected) {
      CAIRN_RETURN_IF_ERROR(MissingFile(place.directory, expected, visitor));
    }
    ++expected;
    auto reader = SegmentReader::Open(world, place.directory, segment, place.store);
    if (reader.status().code() == StatusCode::kNotFound) continue;  // A live writer took it away.
    if (!reader.ok()) {
      if (reader.status().code() != StatusCode::kCorruption) return reader.status();
      LogStop stop;
      stop.kind = LogStop::Kind::kDamaged;
      stop.path = wal::SegmentPath(place.directory, segment);
      stop.segment = segment;
      stop.what = reader.status().message();
      visitor->OnStop(stop);
      continue;
    }
    SegmentWalk walk(reader->get(), visitor);
    CAIRN_RETURN_IF_ERROR(walk.Run(HeaderOf(world, place, segment + 1), &newest_epoch));
  }
  return Status::Ok();
}

}  // namespace cairn::cli
