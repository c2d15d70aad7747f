// SPDX-License-Identifier: Apache-2.0
//
// Placing records: choosing group, memory and segment. Everything here runs under the log's lock,
// except the copying of headers.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "wal/log_impl.h"

namespace cairn::wal {

static_assert(kLargePayloadBytes <= kMaxGroupBytes);

namespace {

uint32_t FooterBytesOf(const RecordSpec& spec) {
  return static_cast<uint32_t>(sizeof(FooterRecord) +
                               RecordHeaderBytes(spec.fields.size(), spec.strips.size()));
}

uint64_t PayloadBytes(const RecordSpec& spec) {
  uint64_t bytes = 0;
  for (const Strip& strip : spec.strips) bytes += AlignUp(strip.bytes, kRecordAlignment);
  return bytes;
}

}  // namespace

uint64_t LogImpl::max_record_bytes() const {
  const uint64_t by_segment = MaxGroupBytes(options_.segment_bytes) - sizeof(GroupHeader);
  // One such chunk besides those being written and filled.
  const uint64_t by_memory = options_.hot_tail_bytes / 2 - kBlock - sizeof(GroupHeader);
  return std::min(by_segment, by_memory);
}

Result<Log::Slot> LogImpl::Reserve(const RecordSpec& spec, Purpose purpose) {
  const uint64_t record_bytes = RecordBytes(spec.fields.size(), spec.strips);
  if (options_.read_only) {
    return Status(StatusCode::kReadOnly, "the log was opened for reading only");
  }
  CAIRN_CHECK(purpose != Purpose::kReclaim || record_bytes <= kReclaimRecordBytesMax);
  if (spec.kind == 0) return Status(StatusCode::kInvalidArgument, "record kind 0");
  if (record_bytes > max_record_bytes()) {
    return Status(StatusCode::kInvalidArgument, "a record of " + std::to_string(record_bytes) +
                                                    " bytes; the log takes up to " +
                                                    std::to_string(max_record_bytes()));
  }
  Slot slot;
  slot.strip_offsets.resize(spec.strips.size());
  uint32_t strip_offset = 0;
  for (size_t i = 0; i < spec.strips.size(); ++i) {
    slot.strip_offsets[i] = strip_offset;
    strip_offset += static_cast<uint32_t>(AlignUp(spec.strips[i].bytes, kRecordAlignment));
  }

  WakeList wakes;
  bool took_stock = false;  // A segment or a chunk: the pool's thread prepares the next.
  {
    MutexLock lock(&mutex_);
    if (closing_) return Status(StatusCode::kInvalidState, "the log is closed");
    if (!cause_.ok()) return Status(StatusCode::kPoisoned, std::string(cause_.message()));
    CAIRN_CHECK(spec.unit <= last_reserved_.load(std::memory_order_relaxed));
    const HotTail::Chunk* const chunk_before = chunk_.get();
    // Even on out-of-memory, wake the waiters that GroupFor collected.
    const Result<Group*> placed = CatchBadAlloc([&] {
      mutex_.AssertHeld();
      return GroupFor(spec, record_bytes, purpose, wakes);
    });
    took_stock =
        chunk_.get() != chunk_before || pool_.ready() == 0 || std::exchange(wake_pool_, false);
    if (placed.ok()) {
      Group& group = **placed;
      CAIRN_CHECK(&group == forming_);
      CAIRN_CHECK(group.segment == segment_);
      slot.sequence = last_reserved_.load(std::memory_order_relaxed) + 1;
      last_reserved_.store(slot.sequence);
      slot.location = {segment_->number, epoch_, static_cast<uint32_t>(group.end()),
                       static_cast<uint32_t>(record_bytes)};
      slot.group = &group;
      slot.record = group.chunk->At(slot.location.offset);
      CAIRN_CHECK(slot.sequence == group.first_sequence + group.record_count);
      CAIRN_CHECK(slot.location.offset % kRecordAlignment == 0);
      group.bytes += static_cast<uint32_t>(record_bytes);
      CAIRN_CHECK(group.end() <= group.chunk->end());
      CAIRN_CHECK(AlignUp(group.end(), kBlock) <= segment_->allocated);
      CountPlaced(group.end());
      group.record_count += 1;
      group.footer_bytes += FooterBytesOf(spec);
      group.fills.fetch_add(1, std::memory_order_relaxed);
      group.chunk->used.store(static_cast<uint32_t>(group.end()), std::memory_order_release);
      ++counters_.records;
      // Its early pieces begin where blocks hold payload only.
      group.early_begin = group.early_end = static_cast<uint32_t>(AlignUp(
          slot.location.offset +
              AlignUp(RecordHeaderBytes(spec.fields.size(), spec.strips.size()), kRecordAlignment),
          kBlock));
      if (group.large) CloseForming();
      // Ask before they are needed.
      if (segment_->allocated < options_.segment_bytes &&
          group.end() > segment_->allocated / kGrowth) {
        took_stock |= AskForBlocks(group.end());
      }
      if (log_thread_idle_) wakes.Add(log_word_);
      if (awaits_members_ && group.record_count >= members_wanted_) wakes.Add(members_word_);
    } else {
      if (placed.status().code() == StatusCode::kBusy) {
        ++counters_.busy;
        // Room is made by writing the groups in the queue, also those that nobody asked for.
        for (const Group* group : queue_) {
          if (group == forming_) break;
          write_wanted_ = std::max(write_wanted_, group->last_sequence());
        }
      }
      PassLeadership(wakes);
    }
    lock.Unlock();
    if (took_stock || (!placed.ok() && placed.status().code() != StatusCode::kOutOfMemory)) {
      pool_.Wake();
    }
    wakes.Go(scheduler_);
    if (!placed.ok()) return placed.status();
  }
  EncodeRecord(spec, slot.sequence, slot.record);
  slot.payload = slot.record + AlignUp(RecordHeaderBytes(spec.fields.size(), spec.strips.size()),
                                       kRecordAlignment);
  return slot;
}

// Whether the forming group can take one more record.
bool LogImpl::FitsForming(uint64_t record_bytes, uint64_t header_bytes) const {
  const Group& group = *forming_;
  const uint64_t end = group.end() + record_bytes;
  return group.bytes + record_bytes <= kMaxGroupBytes &&
         AlignUp(end, kBlock) <= group.chunk->end() &&
         segment_->HasBlocks(end, options_.segment_bytes) &&
         segment_->Fits(end, segment_->footer_bytes + group.footer_bytes + header_bytes,
                        options_.segment_bytes);
}

Status LogImpl::NoNextSegment(bool pool_is_stuck) {
  const Status refusal = pool_.refusal();
  if (refusal.ok() || !pool_is_stuck) {
    ++counters_.segment_late;
    return Status(StatusCode::kBusy, "the next log segment is still being prepared");
  }
  if (refusal.code() == StatusCode::kNoSpace) {
    return Status(StatusCode::kNoSpace,
                  "no space for another log segment: " + std::string(refusal.message()));
  }
  const bool no_memory = refusal.code() == StatusCode::kOutOfMemory;
  return Status(no_memory ? StatusCode::kOutOfMemory : StatusCode::kIoError,
                "another log segment cannot be made: " + std::string(refusal.message()),
                refusal.reason());
}

// Whether this record may go where the log is being written. Until there are spare segments again
// and the reserve is whole, data may not go into a segment opened as ballast, and releases use only
// a part of the last one: else they would use up what gives space back.
Status LogImpl::CheckBallast(uint64_t record_bytes, Purpose purpose) {
  if (segment_ == nullptr || purpose == Purpose::kReclaim) return Status::Ok();
  const uint64_t wanted = purpose == Purpose::kData ? kBallastSegments : 1;
  // Read once: a segment that arrives in between must not fail the call for want of space.
  const uint64_t ready = pool_.ready();
  const bool short_of_space = options_.grant != nullptr && options_.grant->IsShort();
  if (ready >= wanted && !short_of_space) {
    segment_->last = false;
    if (purpose == Purpose::kData) segment_->ballast = false;
  }
  if (purpose == Purpose::kData) {
    if (!segment_->ballast) return Status::Ok();
  } else {
    const uint64_t end =
        forming_ != nullptr ? forming_->end() : segment_->end + sizeof(GroupHeader);
    if (!segment_->last || end + record_bytes <= segment_->allocated / kReleaseShareOfLast) {
      return Status::Ok();
    }
  }
  if (ready < wanted) return NoNextSegment(/*pool_is_stuck=*/true);
  return Status(StatusCode::kNoSpace,
                "no space for another log segment: what is left is kept for giving space back");
}

// Whether the disk, if it copies on write, has room for certain.
Status LogImpl::CheckCushion(Purpose purpose) const {
  const SpaceCushion& cushion = pool_.cushion();
  const bool has_room = purpose == Purpose::kReclaim || cushion.whole() ||
                        !CAIRN_KEPT(kCushionWhole) ||
                        (purpose == Purpose::kRelease && cushion.left() > kCushionForReclaim);
  return has_room ? Status() : Status(StatusCode::kNoSpace, "the disk is full");
}

// Whether the cushion has room for all groups that are not written, and for this record. A record
// that is larger goes alone.
bool LogImpl::CushionCovers(uint64_t record_bytes) const {
  if (pool_.cushion().pieces() == 0) return true;
  uint64_t unwritten = 0;
  for (const Group* group : queue_) unwritten += group->written ? 0 : group->bytes + kBlock;
  return unwritten == 0 || unwritten + record_bytes <=
                               kCushionPiecesForGroups * CushionPieceBytes(options_.segment_bytes);
}

Status LogImpl::CheckRoom(std::span<const uint64_t> record_bytes) {
  MutexLock lock(&mutex_);
  // The free space of the disk is unknown unless it was full the last time.
  const bool disk_is_full = pool_.disk_is_full();
  if (options_.grant == nullptr && !disk_is_full) return Status::Ok();
  uint64_t end = options_.segment_bytes, needed = 0;
  if (forming_ != nullptr) {
    end = AlignUp(forming_->end(), kBlock);
  } else if (segment_ != nullptr) {
    end = segment_->end;
  }
  for (const uint64_t bytes : record_bytes) {
    if (AlignUp(end + sizeof(GroupHeader) + bytes, kBlock) > options_.segment_bytes) {
      end = kFirstGroupOffset;
      ++needed;
    }
    end = AlignUp(end + sizeof(GroupHeader) + bytes, kBlock);
  }
  uint64_t had = pool_.ready() + pool_.making();
  had -= std::min<uint64_t>(had, kBallastSegments);
  if (!disk_is_full) had += options_.grant->room(Purpose::kData) / options_.segment_bytes;
  lock.Unlock();
  if (needed <= had) return Status::Ok();
  disk_is_full ? pool_.TryOneMore() : pool_.Wake();
  return Status(StatusCode::kNoSpace,
                std::string(disk_is_full ? "the disk is full" : "the cap of the store is reached") +
                    ": log segments needed: " + std::to_string(needed) + ", there is room for " +
                    std::to_string(had));
}

LogImpl::Group* LogImpl::FreeGroup() {
  for (Group& group : groups_) {
    if (group.state == GroupState::kFree) return &group;
  }
  return nullptr;
}

// Memory for `bytes` from `offset` of the segment on: the rest of the current chunk or a new one.
Result<std::shared_ptr<HotTail::Chunk>> LogImpl::ChunkFor(uint64_t segment, uint32_t offset,
                                                          uint64_t bytes) {
  CAIRN_CHECK(bytes % kBlock == 0);
  if (chunk_ != nullptr && chunk_->segment == segment && offset >= chunk_->offset &&
      offset + bytes <= chunk_->end()) {
    return chunk_;
  }
  chunk_.reset();  // So that it can be recycled when nothing else uses it.
  bool pinned = false;
  // No chunk needs more memory than the rest of the segment file.
  std::shared_ptr<HotTail::Chunk> added = hot_.Add(segment, offset, bytes, &pinned);
  if (added == nullptr) {
    return pinned ? Status(StatusCode::kBusy, "the memory of the log is in use")
                  : Status(StatusCode::kOutOfMemory, "no memory for a log chunk");
  }
  return added;
}

Status LogImpl::NoBlocks(bool refused) {
  if (refused) {
    return Status(StatusCode::kNoSpace, "no space for more of the log segment: the disk is full");
  }
  ++counters_.segment_late;
  return Status(StatusCode::kBusy, "more of the log segment is still being prepared");
}

// Requests blocks of segment_ up to `end` and a good deal further. False while the disk has none.
bool LogImpl::AskForBlocks(uint64_t end) {
  return pool_.Grow(segment_->file, segment_->number, segment_->allocated, end + kBlock);
}

// Opens the next segment, for a first group of this size. Changes nothing when it fails.
Status LogImpl::OpenNextSegment(uint64_t group_bytes, uint32_t group_footer, Purpose purpose) {
  CAIRN_CHECK(forming_ == nullptr);
  const uint32_t must_remain = purpose == Purpose::kData ? kBallastSegments : 0;
  const bool ballast = pool_.ready() <= kBallastSegments;
  const bool last = pool_.ready() == 1;
  if (pool_.ready() <= must_remain) return NoNextSegment(/*pool_is_stuck=*/true);
  bool refused = false;
  const uint64_t blocks = kFirstGroupOffset + AlignUp(group_bytes, kBlock) + kBlock;
  if (!pool_.NextHasBlocks(blocks, &refused)) return NoBlocks(refused);
  // Memory first: a segment that was taken must be written. Its number is known in advance.
  const uint64_t number = segment_ != nullptr ? segment_->number + 1
                          : live_.empty()     ? options_.first_segment
                                              : live_.back().number + 1;
  CAIRN_CHECK(live_.empty() || live_.back().number + 1 == number);
  auto chunk = ChunkFor(number, 0, kFirstGroupOffset + AlignUp(group_bytes, kBlock));
  if (!chunk.ok()) return chunk.status();
  auto opened = std::make_shared<OpenSegmentState>();
  live_.emplace_back();
  const uint64_t group_mean =
      segment_ != nullptr ? segment_->end / std::max(segment_->groups, 1u) : 0;
  SegmentPool::Ready next = pool_.TakeNext(group_mean, blocks);
  if (next.file == nullptr) {
    live_.pop_back();
    return NoNextSegment(pool_.stock_is_refused());
  }
  CAIRN_CHECK(next.segment == number);
  chunk_ = *chunk;
  opened->number = next.segment;
  opened->first_sequence = last_reserved_.load() + 1;
  opened->file = std::move(next.file);
  opened->allocated = next.allocated;
  opened->opens_epoch = segment_ == nullptr;
  opened->ballast = ballast;
  opened->last = last;
  opened->footer = !footer_.empty();
  if (!opened->Fits(opened->end + group_bytes, group_footer, options_.segment_bytes))
    opened->footer = false;
  live_.back() = {.number = opened->number,
                  .epoch = epoch_,
                  .end_offset = kFirstGroupOffset,
                  .first_sequence = opened->first_sequence,
                  .last_sequence = opened->first_sequence - 1,
                  .file_bytes = options_.segment_bytes};
  // The rest of the segment before is not filled any more.
  if (segment_ != nullptr) {
    CountPlaced(options_.segment_bytes);
    // The footer would lie where the file has no blocks.
    if (segment_->allocated < options_.segment_bytes) segment_->footer = false;
  }
  counted_end_ = 0;
  segment_ = std::move(opened);
  pool_.NeedOne(false);
  return Status::Ok();
}

// The forming group, or a new one, for a record of these parts. Changes nothing when it fails,
// except that the forming group may have been closed.
Result<LogImpl::Group*> LogImpl::GroupFor(const RecordSpec& spec, uint64_t record_bytes,
                                          Purpose purpose, WakeList& wakes) {
  const bool large = PayloadBytes(spec) >= kLargePayloadBytes;
  const uint32_t footer_bytes = FooterBytesOf(spec);
  CAIRN_RETURN_IF_ERROR(CheckCushion(purpose));
  CAIRN_RETURN_IF_ERROR(CheckBallast(record_bytes, purpose));
  const bool covered = CushionCovers(record_bytes);
  if (covered && forming_ != nullptr && !large && FitsForming(record_bytes, footer_bytes)) {
    return forming_;
  }
  Group* group = covered ? FreeGroup() : nullptr;
  if (forming_ != nullptr) {
    // Writes its records now, even if nobody asked for them. Without another group it stays open:
    // smaller records, such as tokens whose KV is shed, may still fit.
    write_wanted_ = std::max(write_wanted_, forming_->last_sequence());
    if (group != nullptr) CloseForming();
    PassLeadership(wakes);
  }
  if (group == nullptr) return Status(StatusCode::kBusy, "the groups of the log are all in use");

  const uint64_t group_bytes = sizeof(GroupHeader) + record_bytes;
  const uint32_t group_footer = static_cast<uint32_t>(sizeof(FooterGroup)) + footer_bytes;
  bool same_segment = segment_ != nullptr &&
                      segment_->Fits(segment_->end + group_bytes,
                                     segment_->footer_bytes + group_footer, options_.segment_bytes);
  if (same_segment && !segment_->HasBlocks(segment_->end + group_bytes, options_.segment_bytes)) {
    const bool coming = AskForBlocks(segment_->end + group_bytes);
    // As at the end of a segment: work that gives space back goes on in the ballast.
    if (coming || purpose == Purpose::kData) return NoBlocks(/*refused=*/!coming);
    same_segment = false;
  }
  if (same_segment) {
    auto chunk = ChunkFor(segment_->number, segment_->end, AlignUp(group_bytes, kBlock));
    if (!chunk.ok()) return chunk.status();
    chunk_ = *chunk;
  } else {
    CAIRN_RETURN_IF_ERROR(OpenNextSegment(group_bytes, group_footer, purpose));
  }

  group->state = GroupState::kForming;
  group->chunk = chunk_;
  group->segment = segment_;
  group->offset = segment_->end;
  group->bytes = sizeof(GroupHeader);
  group->first_sequence = last_reserved_.load() + 1;
  group->record_count = 0;
  group->footer_bytes = sizeof(FooterGroup);
  group->opened_ns = scheduler_.MonotonicNs();
  group->opens_segment = segment_->end == kFirstGroupOffset;
  group->large = large;
  group->led = group->written = group->durable = false;
  CAIRN_CHECK(group->fills.load() == 0);
  CAIRN_CHECK(!group->has_sleepers);
  CAIRN_CHECK(group->free_requests.size() == kPieceDepth);
  CAIRN_CHECK(queue_.empty() || queue_.back()->last_sequence() + 1 == group->first_sequence);
  CAIRN_CHECK(queue_.size() < queue_.capacity());  // It must not throw.
  forming_ = group;
  queue_.push_back(group);
  return group;
}

// segment_ is filled up to `end` now.
void LogImpl::CountPlaced(uint64_t end) {
  CAIRN_CHECK(end >= counted_end_);
  live_bytes_ += end - counted_end_;
  counted_end_ = end;
}

// No more members; the next group begins on the next block.
void LogImpl::CloseForming() {
  CAIRN_CHECK(forming_ != nullptr);
  Group& group = *forming_;
  CAIRN_CHECK(group.state == GroupState::kForming);
  CAIRN_CHECK(&group == queue_.back());
  CAIRN_CHECK(group.record_count > 0);
  OpenSegmentState& segment = *group.segment;
  group.state = GroupState::kClosed;
  forming_ = nullptr;
  segment.end = static_cast<uint32_t>(AlignUp(group.end(), kBlock));
  CountPlaced(segment.end);
  wake_pool_ |= pool_.Placed(AlignUp(group.bytes, kBlock));
  ++segment.groups;
  // The rest that releases leave of the last segment is enough to give some space back; then
  // another is needed.
  if (segment.end > segment.allocated / kReleaseShareOfLast) pool_.NeedOne(true);
  CAIRN_CHECK(segment.end <= segment.allocated);
  group.footer_offset = segment.footer_bytes;
  if (segment.footer &&
      segment.footer_bytes + group.footer_bytes > options_.segment_bytes / kFooterShare) {
    segment.footer = false;
  }
  if (segment.footer) {
    segment.footer_bytes += group.footer_bytes;
    segment.footer_groups += 1;
  } else {
    group.footer_bytes = 0;
  }
}

void LogImpl::PieceReady(Slot& slot, uint64_t filled) {
  CAIRN_CHECK(slot.group != nullptr);
  Group& group = *static_cast<Group*>(slot.group);
  if (!group.large || !group.HasQueue(*world_.files)) return;
  CAIRN_CHECK(group.record_count == 1);
  const uint64_t ready =
      static_cast<uint64_t>(slot.payload - slot.record) + slot.location.offset + filled;
  CAIRN_CHECK(ready <= uint64_t{slot.location.offset} + slot.location.bytes);
  // Pieces for which the queue has no room are left to the leader. Nothing on disk can make a
  // reader look at these blocks before the header is written.
  while (group.early_end + kPieceBytes <= ready && !group.free_requests.empty()) {
    group.Submit(group.early_end, group.early_end + static_cast<uint32_t>(kPieceBytes));
    group.early_end += static_cast<uint32_t>(kPieceBytes);
  }
}

void LogImpl::Publish(Slot& slot, std::span<const uint64_t> strip_hashes) {
  CAIRN_CHECK(slot.group != nullptr);
  CAIRN_CHECK(slot.record != nullptr);
  SealRecord(slot.location, options_.store, strip_hashes, slot.record);
  if (seal_waiters_.load(std::memory_order_seq_cst) != 0) {
    seal_word_.fetch_add(1);
    scheduler_.WakeAll(seal_word_);
  }
  Group& group = *static_cast<Group*>(slot.group);
  slot.group = nullptr;
  group.EndFill(scheduler_);
}

}  // namespace cairn::wal
