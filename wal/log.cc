// SPDX-License-Identifier: Apache-2.0
//
// Opening, closing, reading and recycling.
#include "wal/log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "base/io/file_util.h"
#include "wal/log_impl.h"

namespace cairn::wal {
namespace {

LogOptions Clamped(LogOptions options) {
  options.chunk_bytes =
      AlignUp(std::clamp<uint64_t>(options.chunk_bytes, 2 * kBlock, options.segment_bytes), kBlock);
  // Room for chunks of the groups in flight, the formed and the forming one, and some to spare.
  options.chunk_bytes = std::min(options.chunk_bytes, AlignUp(options.hot_tail_bytes / 8, kBlock));
  options.spare_segments_min = std::max(options.spare_segments_min, kBallastSegments);
  options.spare_segments_max = std::max(options.spare_segments_max, options.spare_segments_min);
  return options;
}

Status CheckOptions(const LogOptions& options) {
  const auto refuse = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "log options: " + what);
  };
  if (options.segment_bytes < kMinSegmentBytes || options.segment_bytes > kMaxSegmentBytes ||
      options.segment_bytes % kBlock != 0) {
    return refuse("segment_bytes " + std::to_string(options.segment_bytes) +
                  " is not a multiple of 4096 in 256 KiB to 2 GiB");
  }
  if (options.hot_tail_bytes < kMinHotTailBytes) {
    return refuse("hot_tail_bytes " + std::to_string(options.hot_tail_bytes) + " is below " +
                  std::to_string(kMinHotTailBytes));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Log>> Log::Open(io::World world, LogOptions options,
                                       RecoveredLog recovered) {
  CAIRN_RETURN_IF_ERROR(CheckOptions(options));
  auto log = std::make_unique<LogImpl>(std::move(world), Clamped(std::move(options)),
                                       std::move(recovered));
  CAIRN_RETURN_IF_ERROR(log->Start());
  return std::unique_ptr<Log>(std::move(log));
}

LogImpl::LogImpl(io::World world, LogOptions options, RecoveredLog recovered)
    : world_(std::move(world)),
      scheduler_(*world_.scheduler),
      options_(std::move(options)),
      recovered_(std::move(recovered)),
      epoch_(recovered_.next_epoch),
      hot_(options_.allocator, options_.hot_tail_bytes, options_.chunk_bytes),
      pool_(world_, options_,
            {.on_ready =
                 [this] {
                   WakeList wakes;
                   MutexLock lock(&mutex_);
                   if (room_sleepers_) wakes.Add(room_word_);
                   room_sleepers_ = false;
                   lock.Unlock();
                   wakes.Go(scheduler_);
                 },
             .on_grown = [this](uint64_t segment,
                                uint64_t allocated) { SetAllocated(segment, allocated); },
             .on_fatal = [this](const Status& cause) { Poison(cause); },
             .check_lock = [this] { return CheckLock(); },
             .on_event =
                 [this](const std::string& line) {
                   if (options_.observer != nullptr) options_.observer->OnEvent(line);
                 },
             .idle_work = [this] { return hot_.Prefault(); }}),
      last_reserved_(recovered_.last_sequence),
      written_(recovered_.last_sequence),
      durable_(recovered_.last_sequence) {
  announced_written_ = announced_durable_ = recovered_.last_sequence;
  issued_ = writes_through_ = write_wanted_ = durable_wanted_ = recovered_.last_sequence;
  last_hash_ = recovered_.last_hash;
  queue_.reserve(kMaxGroups);
  if (!recovered_.segments.empty()) tail_end_ = recovered_.segments.back().end_offset;
  CAIRN_CHECK(recovered_.last_sequence ==
              (recovered_.segments.empty() ? 0 : recovered_.segments.back().last_sequence));
}

void LogImpl::SetLive(std::deque<SegmentInfo>* live) {
  uint64_t bytes = 0;
  uint64_t number = live->empty() ? 0 : live->front().number;
  for (const SegmentInfo& segment : *live) {
    CAIRN_CHECK(segment.number == number);
    ++number;
    bytes += segment.file_bytes;
  }
  live_.swap(*live);
  live_bytes_ = bytes;
}

std::vector<RestingSegment>::iterator LogImpl::FindResting(uint64_t segment) {
  const auto at = std::lower_bound(
      resting_.begin(), resting_.end(), segment,
      [](const RestingSegment& one, uint64_t number) { return one.number < number; });
  return at != resting_.end() && at->number == segment ? at : resting_.end();
}

Status LogImpl::Follow(RecoveredLog recovered, std::span<const RestingSegment> resting) {
  CAIRN_CHECK(options_.read_only);
  std::deque<SegmentInfo> live(recovered.segments.begin(), recovered.segments.end());
  std::vector<RestingSegment> rest(resting.begin(), resting.end());
  MutexLock lock(&mutex_);
  SetLive(&live);
  resting_.swap(rest);
  recovered_ = std::move(recovered);
  open_files_.clear();
  ++follows_;
  last_reserved_ = written_ = durable_ = recovered_.last_sequence;
  last_hash_ = recovered_.last_hash;
  return Status::Ok();
}

Status LogImpl::Start() {
  std::deque<SegmentInfo> live(recovered_.segments.begin(), recovered_.segments.end());
  {
    MutexLock lock(&mutex_);
    SetLive(&live);
    resting_ = options_.resting;
    CAIRN_CHECK(resting_.empty() ||
                resting_.back().number <
                    (live_.empty() ? options_.first_segment : live_.front().number));
  }
  // The pool would rename and write files that may belong to a running writer.
  if (options_.read_only) return Status::Ok();
  if (options_.grant != nullptr) {
    options_.grant->TakeAnyway(live_bytes());
    options_.grant->TakeAnyway(options_.resting.size() * options_.segment_bytes);
  }
  const bool is_new = recovered_.segments.empty();
  const uint64_t first = is_new ? options_.first_segment : recovered_.segments.front().number;
  const uint64_t next = is_new ? first : recovered_.segments.back().number + 1;
  CAIRN_RETURN_IF_ERROR(pool_.Open(first, next, /*fill=*/is_new));

  footer_.Allocate(options_.allocator, options_.segment_bytes);
  block_ = AlignedBuffer::TryAllocate(options_.allocator, kBlock, kBlock);
  if (block_.empty()) return Status(StatusCode::kOutOfMemory, "no memory for the log");
  while (hot_.Prefault()) {
  }

  if (!pool_.Start()) return Status(StatusCode::kIoError, "no thread for segments of the log");
  pool_.Wake();
  log_thread_ = scheduler_.StartThread("cairn-log", [this] { RunLogThread(); });
  if (log_thread_ == nullptr) return Status(StatusCode::kIoError, "no thread for the log");
  return Status::Ok();
}

void LogImpl::SetAllocated(uint64_t segment, uint64_t allocated) {
  CAIRN_CHECK(allocated <= options_.segment_bytes);
  MutexLock lock(&mutex_);
  if (segment_ == nullptr || segment_->number != segment) return;
  CAIRN_CHECK(allocated >= segment_->allocated);
  segment_->allocated = allocated;
}

LogImpl::~LogImpl() { (void)Close(); }

Status LogImpl::poisoned() const {
  MutexLock lock(&mutex_);
  return cause_;
}

Pinned LogImpl::FindHot(const Location& record, uint32_t bytes) {
  if (record.epoch != epoch_) return {};  // Memory has records of this epoch only.
  return hot_.Find(record.segment, record.offset, bytes);
}

void LogImpl::AwaitSealed(const Pinned& record) {
  if (IsSealed(record.bytes)) return;
  seal_waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const uint32_t seen = seal_word_.load();
    if (IsSealed(record.bytes)) break;
    scheduler_.Wait(seal_word_, seen, io::kNoDeadline);
  }
  seal_waiters_.fetch_sub(1);
}

Result<std::shared_ptr<io::File>> LogImpl::OpenSegment(uint64_t segment) {
  uint64_t follows = 0;
  {
    MutexLock lock(&mutex_);
    follows = follows_;
    if (segment_ != nullptr && segment_->number == segment) return segment_->file;
    for (const auto& [number, file] : open_files_) {
      if (number == segment) return file;
    }
    const bool live = std::any_of(live_.begin(), live_.end(), [segment](const SegmentInfo& entry) {
      return entry.number == segment;
    });
    if (!live && FindResting(segment) == resting_.end()) {
      return Status(StatusCode::kNotFound,
                    "log segment " + SegmentFileName(segment) + " is not part of the log");
    }
  }
  CAIRN_ASSIGN_OR_RETURN(
      std::shared_ptr<io::File> file,
      world_.files->Open(SegmentPath(options_.directory, segment), {.direct = true}));
  MutexLock lock(&mutex_);
  if (follows != follows_) return file;
  open_files_.emplace_back(segment, file);
  const uint64_t open_max =
      std::min(kOpenSegmentFiles, world_.files->OpenFilesMax() / kOpenSegmentShare);
  while (open_files_.size() > std::max<uint64_t>(open_max, 1)) open_files_.pop_front();
  return file;
}

std::vector<SegmentInfo> LogImpl::Segments() const {
  MutexLock lock(&mutex_);
  return {live_.begin(), live_.end()};
}

LogPosition LogImpl::written_end() const {
  MutexLock lock(&mutex_);
  if (tail_segment_ != nullptr) {
    return {tail_segment_->number, epoch_, tail_end_, written_.load(), last_hash_};
  }
  if (recovered_.segments.empty()) return {};
  const SegmentInfo& last = recovered_.segments.back();
  return {last.number, last.epoch, last.end_offset, recovered_.last_sequence, recovered_.last_hash};
}

Status LogImpl::ReleaseBelow(uint64_t first_segment, std::span<const uint64_t> resting) {
  CAIRN_RETURN_IF_ERROR(CheckLock());
  const size_t before = released_.size();
  {
    MutexLock lock(&mutex_);
    released_.reserve(before + live_.size());
    resting_.reserve(resting_.size() + live_.size());
    // The segment with the last durable record stays: if a power loss takes what follows, the log
    // continues at its end.
    const uint64_t durable = durable_.load();
    while (live_.size() > 1 && live_.front().number < first_segment &&
           live_[1].first_sequence <= durable) {
      CAIRN_CHECK(live_[1].number == live_.front().number + 1);
      const SegmentInfo& front = live_.front();
      CAIRN_CHECK(live_bytes_.load() >= front.file_bytes);
      if (std::binary_search(resting.begin(), resting.end(), front.number)) {
        CAIRN_CHECK(front.file_bytes == options_.segment_bytes);
        CAIRN_CHECK(resting_.empty() || resting_.back().number < front.number);
        resting_.push_back({front.number, front.end_offset});
      } else {
        released_.push_back(front);
      }
      live_bytes_ -= front.file_bytes;
      live_.pop_front();
    }
    const uint64_t first_live = live_.empty() ? 0 : live_.front().number;
    for (auto open = open_files_.begin(); open != open_files_.end();) {
      const bool stays = open->first >= first_live || FindResting(open->first) != resting_.end();
      open = stays ? std::next(open) : open_files_.erase(open);
    }
  }
  Status status;
  for (size_t at = released_.size() > before ? before : 0; at < released_.size();) {
    const Status recycled = pool_.Recycle(released_[at].number, released_[at].file_bytes);
    if (status.ok()) status = recycled;
    if (recycled.ok()) {
      released_.erase(released_.begin() + static_cast<ptrdiff_t>(at));
    } else {
      ++at;
    }
  }
  return status;
}

// The file goes first: as long as it is there its bytes are taken.
Status LogImpl::RemoveResting(uint64_t segment) {
  CAIRN_RETURN_IF_ERROR(CheckLock());
  CAIRN_RETURN_IF_ERROR(
      io::RemoveIfExists(*world_.files, SegmentPath(options_.directory, segment)));
  {
    MutexLock lock(&mutex_);
    const auto found = FindResting(segment);
    CAIRN_CHECK(found != resting_.end());
    resting_.erase(found);
    std::erase_if(open_files_, [&](const auto& open) { return open.first == segment; });
  }
  if (options_.grant != nullptr) options_.grant->Return(options_.segment_bytes);
  pool_.Wake();  // The space may be what was missing.
  return Status::Ok();
}

Log::Counters LogImpl::counters() const {
  auto* self = const_cast<LogImpl*>(this);  // The parts count under locks of their own.
  const SegmentPool::Stock stock = self->pool_.stock();
  const uint64_t hot_bytes = self->hot_.bytes();
  MutexLock lock(&mutex_);
  Counters counters = counters_;
  counters.disk_is_full = pool_.disk_is_full() && pool_.ready() <= kBallastSegments;
  counters.segments_made = stock.made;
  counters.bytes_prewritten = stock.bytes_prewritten;
  counters.segments_live = live_.size();
  counters.segments_spare = stock.spares;
  for (const SegmentInfo& live : live_) counters.segment_bytes_live += live.file_bytes;
  counters.segments_resting = resting_.size();
  counters.segment_bytes_resting = resting_.size() * options_.segment_bytes;
  counters.segment_bytes_total = counters.segment_bytes_live + counters.segment_bytes_resting +
                                 stock.spares * options_.segment_bytes;
  counters.hot_bytes = hot_bytes;
  counters.groups_in_flight = in_flight_;
  counters.no_segment = stock.times_refused;
  return counters;
}

Status LogImpl::Flush(uint64_t deadline_ns) {
  const uint64_t last = last_reserved_.load();
  return last == 0 ? Status::Ok() : Wait(last, /*durable=*/true, deadline_ns);
}

// Marks for recovery that the log ended here in order, so that it need not search what follows.
// Frees the rest of the segment.
Status LogImpl::WriteCleanEnd() {
  std::shared_ptr<OpenSegmentState> segment;
  uint32_t offset = 0;
  uint64_t allocated = 0;
  GroupHeader header{};
  {
    MutexLock lock(&mutex_);
    if (!cause_.ok() || !any_written_) return Status::Ok();
    // Close has flushed.
    CAIRN_CHECK(queue_.empty());
    CAIRN_CHECK(durable_.load() == last_reserved_.load());
    CAIRN_CHECK(tail_segment_ != nullptr);
    segment = tail_segment_;
    offset = tail_end_;
    allocated = segment->allocated;
    header.first_sequence = written_.load() + 1;
    header.synced_upto = durable_.load();
  }
  if (offset + kBlock > allocated) return Status::Ok();
  header.epoch = epoch_;
  header.segment = segment->number;
  header.length = sizeof(GroupHeader);
  header.flags = kGroupCleanEnd;
  CAIRN_CHECK(block_.size() == kBlock);
  std::memset(block_.data(), 0, kBlock);
  EncodeGroupHeader(header, offset, options_.store, block_.data());
  CAIRN_RETURN_IF_ERROR(
      WithCushion([&] { return segment->file->Write(offset, block_.span(), /*durable=*/false); }));
  // First: only a clean end proves that a short file lost nothing.
  if (CAIRN_KEPT(kCleanEndBeforeCut)) CAIRN_RETURN_IF_ERROR(segment->file->Sync());
  CutTail(*segment, uint64_t{offset} + kBlock);
  return Status::Ok();
}

// Nobody appends to a segment that recovery found, so the unwritten rest of the last one is not
// needed. Not synced: a power loss may bring the tail back, which does no harm and is counted then.
// Nor does it if the cut fails.
void LogImpl::CutTail(OpenSegmentState& segment, uint64_t end) {
  CAIRN_CHECK(end % kBlock == 0);
  CAIRN_CHECK(end >= kMinClosedBytes);
  if (end >= options_.segment_bytes) return;
  const Status cut = segment.file->Truncate(end);
  if (!cut.ok()) {
    if (options_.observer == nullptr) return;
    options_.observer->OnEvent("log: the end of a segment is not given back: " + cut.ToString());
    return;
  }
  {
    MutexLock lock(&mutex_);
    CAIRN_CHECK(live_.back().number == segment.number);
    live_.back().file_bytes = end;
  }
  if (options_.grant != nullptr) options_.grant->Return(options_.segment_bytes - end);
}

void LogImpl::StopThreads() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    log_word_.fetch_add(1);
  }
  scheduler_.WakeAll(log_word_);
  log_thread_.reset();
  pool_.Stop();
}

// After a poisoning there may be leaders whose callers already have their answer, and pieces of
// groups that nobody leads any more.
void LogImpl::AwaitWrites() {
  MutexLock lock(&mutex_);
  while (in_flight_ > 0) Sleep(write_word_, io::kNoDeadline);
  lock.Unlock();
  for (Group& group : groups_) {
    while (group.queue != nullptr && group.queue->in_flight() > 0) {
      static_cast<void>(group.Reap());  // The cause is known.
    }
  }
}

Status LogImpl::Close() {
  {
    MutexLock lock(&mutex_);
    if (closing_) return close_status_;
    closing_ = true;
  }
  // The threads are ended in any case.
  const Status status = CatchBadAlloc([this]() -> Status {
    if (log_thread_ == nullptr) return Status::Ok();
    if (poisoned().ok()) {
      CAIRN_RETURN_IF_ERROR(CheckLock());
      CAIRN_RETURN_IF_ERROR(Flush(io::kNoDeadline));
    }
    if (CAIRN_KEPT(kStopPoolBeforeCut)) pool_.Stop();  // It must not extend the file that is cut.
    const Status ended = WriteCleanEnd();
    if (!ended.ok()) Poison(ended);
    return ended;
  });
  StopThreads();
  AwaitWrites();
  hot_.Clear();
  std::shared_ptr<HotTail::Chunk> chunk;
  bool may_lead = false;
  {
    MutexLock lock(&mutex_);
    chunk.swap(chunk_);
    open_files_.clear();
    if (segment_ != nullptr) segment_->file = nullptr;
    if (tail_segment_ != nullptr) tail_segment_->file = nullptr;
    close_status_ = status;
    may_lead = cause_.ok() && !queue_.empty();  // If there was no memory to flush.
  }
  // Only leaders need these. Handles may outlive this by far.
  if (!may_lead) {
    footer_ = FooterBuffer();
    block_ = AlignedBuffer();
  }
  return status;
}

}  // namespace cairn::wal
