// SPDX-License-Identifier: Apache-2.0
//
// Internals of wal::Recover. The rules are in wal/FORMAT.md; in short:
//
//   A segment is part of the log if its header and first group fit together, continue the segment
//   before it, and nothing newer contradicts. The header of the next segment says exactly where a
//   segment ends and proves that it was synced up to there. So only the last segment can be torn,
//   and whatever is wrong in an earlier one is corruption.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wal/log.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {

using OnRecord = std::function<Status(const RecordView&)>;

// The end of a segment according to the next segment's header.
struct KnownEnd {
  uint64_t last_sequence = 0;
  uint64_t end_offset = 0;
  uint64_t last_hash = 0;
};

class Recovery {
 public:
  Recovery(io::World& world, const RecoveryOptions& options, const OnRecord& on_record)
      : world_(world),
        options_(options),
        on_record_(on_record),
        max_epoch_(options.epoch_used),
        stop_after_(options.stop_after) {}

  Result<RecoveredLog> Run();

 private:
  struct Segment {
    std::unique_ptr<SegmentReader> reader;
    SegmentHeader header{};
    // Closing the log gave the rest back.
    bool EndsEarly() const { return reader->bytes() < header.segment_bytes; }
  };

  Status Replay();
  Status ReplaySegment(Segment& segment, const std::optional<KnownEnd>& end);
  Status WalkSegment(Segment& segment, SegmentInfo& info, const std::optional<KnownEnd>& end);
  Result<bool> DeliverGroup(SegmentReader& reader, const SegmentReader::Group& group,
                            const SegmentInfo& info);
  Status CheckCleanEnd(const Segment& segment, const SegmentInfo& info, uint64_t group_offset);
  Result<bool> BeginsWell(Segment& segment);
  Status EndBeforeFirstGroup(Segment& segment, const Status& header);
  Result<bool> GoesOnIn(Segment& next);
  Status LookAhead(Segment& segment, SegmentInfo info);
  Result<bool> ReplayFooter(Segment& segment, SegmentInfo& info, const KnownEnd& end);
  Status EndLog(Segment& segment, const SegmentInfo& info, const Status& what_is_there);
  Result<bool> EndsBehindCleanEnd(Segment& segment, const SegmentInfo& info);
  static Status WasCut(const Segment& segment, const std::string& why);
  Result<bool> FirstGroupIsGood(Segment& segment);
  Result<bool> EndedEmpty(const Segment& segment);
  Result<std::optional<Segment>> OpenSuccessor(const Segment& segment);
  Status CheckNothingIsMissing(uint64_t missing, Segment* last);
  bool SyncedIn(const std::vector<GroupHeader>& groups, uint64_t sequence, std::string* where);
  Result<bool> SomethingSynced(SegmentReader& reader, uint64_t begin, uint64_t following,
                               uint64_t epoch, uint64_t sequence, std::string* where);
  Result<bool> FollowingHold(uint64_t segment, uint64_t epoch, uint64_t sequence,
                             std::string* where);
  Status Deliver(const std::vector<RecordView>& records);
  Status FindNextEpoch();
  Status Sync();
  Status WriteAgain(io::File& file, uint64_t offset, std::span<const std::byte> bytes);
  Status WriteUnprovenAgain(io::File& file);
  // Whether the wanted records begin within this segment.
  bool BeginsWithin(const SegmentHeader& header) const {
    const LogPosition& from = options_.replay_from;
    return header.segment == from.segment && header.epoch == from.epoch &&
           from.offset > kFirstGroupOffset;
  }
  bool HasFile(uint64_t segment) const {
    return std::binary_search(directory_.segments.begin(), directory_.segments.end(), segment);
  }

  io::World& world_;
  const RecoveryOptions& options_;
  const OnRecord& on_record_;
  LogDirectory directory_;
  RecoveredLog log_;
  uint64_t max_epoch_;
  uint64_t delivered_ = 0;  // The last sequence that on_record was given.
  struct GroupPlace {
    uint32_t offset = 0;
    uint64_t first_sequence = 0, last_sequence = 0;
  };
  std::deque<GroupPlace> unproven_;  // Groups of the last segment that nothing proves synced.
  uint64_t stop_after_ = UINT64_MAX;
  bool stopped_ = false;  // stop_after was reached: the rest is not looked at.
  bool refused_ = false;  // By on_record, which is no damage of the log.
};

}  // namespace cairn::wal
