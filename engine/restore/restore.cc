// SPDX-License-Identifier: Apache-2.0
//
// The read path: plan under the lock; what the hot tail holds is scattered at once; the rest comes
// in windows, several in flight, each verified and scattered by the caller or an executor job while
// the disk goes on with the next.
#include <algorithm>
#include <deque>

#include "base/core/check.h"
#include "engine/restore/scatter.h"
#include "engine/store_core.h"
#include "wal/format.h"

namespace cairn {

using engine::ReadWindow;
using engine::RecordJob;
using engine::RestorePlan;

// Shared by the calling thread and executor jobs that help it.
class RestoreJob : public std::enable_shared_from_this<RestoreJob> {
 public:
  RestoreJob(StoreCore* core, const RestorePlan& plan, engine::Scatterer* scatterer,
             const TicketState* ticket, uint64_t deadline_ns)
      : core_(core),
        plan_(plan),
        scatterer_(scatterer),
        ticket_(ticket),
        deadline_ns_(deadline_ns) {}

  // Returns when everything is in place or nothing is touched any more.
  Status Run(std::vector<RecordJob> cold) {
    cold_ = std::move(cold);
    windows_ = engine::PlanWindows(cold_);
    if (windows_.empty()) return Status::Ok();
    Status status = TakeBuffers();
    if (status.ok()) status = ReadAll();
    ReturnBuffers();
    return status;
  }

 private:
  struct Loaded {
    size_t window = 0;
    size_t buffer = 0;
  };

  Status TakeBuffers() {
    uint64_t largest = 0;
    for (const ReadWindow& window : windows_) largest = std::max(largest, window.bytes);
    const size_t wanted = std::min<size_t>(engine::kReadWindows, windows_.size());
    for (size_t i = 0; i < wanted; ++i) {
      AlignedBuffer buffer = core_->TakeReadBuffer(largest);
      if (buffer.empty()) break;
      buffers_.push_back(std::move(buffer));
      free_.push_back(buffers_.size() - 1);
    }
    if (buffers_.empty()) {
      return Status(StatusCode::kOutOfMemory,
                    "restore: no buffer of " + std::to_string(largest) + " bytes");
    }
    return Status::Ok();
  }

  void ReturnBuffers() {
    for (AlignedBuffer& buffer : buffers_) core_->ReturnReadBuffer(std::move(buffer));
  }

  Status ReadAll() {
    io::Scheduler& scheduler = *core_->world_.scheduler;
    const size_t pieces = buffers_.size() * (buffers_[0].size() / engine::kReadPieceBytes + 1);
    const std::unique_ptr<io::Queue> queue = core_->world_.files->NewQueue(pieces);
    requests_.resize(pieces);
    left_.resize(buffers_.size());
    of_buffer_.resize(buffers_.size());
    for (size_t i = 0; i < pieces; ++i) free_requests_.push_back(&requests_[i]);
    size_t next = 0;
    while (true) {
      const uint32_t seen = version_.load(std::memory_order_acquire);
      if (Stopped()) break;
      for (size_t buffer = 0; next < windows_.size(); ++next) {
        const ReadWindow& window = windows_[next];
        if (!Wanted(window.first_job, window.job_count)) continue;
        if (!TakeFree(&buffer)) break;
        if (Status status = Submit(queue.get(), next, buffer); !status.ok()) {
          Fail(status, window.first_job, window.job_count);
          GiveBack(buffer);
        }
      }
      if (ready_count() > 1 || (queue->in_flight() == 0 && ready_count() != 0)) {
        WorkOnOne();
      } else if (queue->in_flight() != 0) {
        Collect(queue->Reap());
      } else if (next < windows_.size() || helpers_.load(std::memory_order_acquire) != 0) {
        scheduler.Wait(version_, seen, io::kNoDeadline);
      } else {
        break;
      }
    }
    {
      std::lock_guard lock(mutex_);
      finished_ = true;
    }
    while (queue->in_flight() != 0) Collect(queue->Reap());
    while (helpers_.load(std::memory_order_acquire) != 0) {
      const uint32_t seen = version_.load(std::memory_order_acquire);
      if (helpers_.load(std::memory_order_acquire) == 0) break;
      scheduler.Wait(version_, seen, io::kNoDeadline);
    }
    std::lock_guard lock(mutex_);
    return status_;
  }

  bool TakeFree(size_t* buffer) {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return false;
    *buffer = free_.back();
    free_.pop_back();
    return true;
  }

  void GiveBack(size_t buffer) {
    std::lock_guard lock(mutex_);
    free_.push_back(buffer);
  }

  Status Submit(io::Queue* queue, size_t index, size_t buffer) {
    const ReadWindow& window = windows_[index];
    if (file_ == nullptr || file_segment_ != window.segment) {
      CAIRN_ASSIGN_OR_RETURN(file_, core_->log_->OpenSegment(window.segment));
      file_segment_ = window.segment;
      files_.push_back(file_);
    }
    of_buffer_[buffer] = index;
    left_[buffer] = 0;
    // Equal pieces: a short one at the end costs as much as a long one.
    const uint64_t pieces = std::max<uint64_t>(1, window.bytes / engine::kReadPieceBytes);
    const uint64_t piece_bytes =
        wal::AlignUp((window.bytes + pieces - 1) / pieces, io::kBlockBytes);
    for (uint64_t done = 0; done < window.bytes; done += piece_bytes) {
      CAIRN_CHECK(!free_requests_.empty());
      io::Request* request = free_requests_.back();
      free_requests_.pop_back();
      *request = io::Request{};
      request->kind = io::Request::Kind::kRead;
      request->file = file_.get();
      request->data = buffers_[buffer].data() + done;
      request->length = std::min(piece_bytes, window.bytes - done);
      request->offset = window.offset + done;
      request->owner = reinterpret_cast<void*>(buffer);
      ++left_[buffer];
      queue->Submit(request);
    }
    return Status::Ok();
  }

  void Collect(io::Request* request) {
    const auto buffer = reinterpret_cast<size_t>(request->owner);
    free_requests_.push_back(request);
    if (!request->status.ok()) {
      const ReadWindow& window = windows_[of_buffer_[buffer]];
      Fail(request->status, window.first_job, window.job_count);
    }
    if (--left_[buffer] != 0) return;
    bool help = false;
    {
      std::lock_guard lock(mutex_);
      ready_.push_back({of_buffer_[buffer], buffer});
      help = !stopped_ && !finished_ && posted_ + helpers_.load() < core_->executor_threads_;
      if (help) ++posted_;
    }
    if (help) {
      core_->executor_->Post([self = shared_from_this()] { self->Help(); });
    }
  }

  // May start late or never (this restore may itself sit on the only executor thread), so only
  // helpers that did start are waited for.
  void Help() {
    {
      std::lock_guard lock(mutex_);
      --posted_;
      if (finished_) return;
      helpers_.fetch_add(1);
    }
    while (!Stopped() && WorkOnOne()) {
    }
    io::Scheduler& scheduler = *core_->world_.scheduler;
    helpers_.fetch_sub(1, std::memory_order_acq_rel);
    version_.fetch_add(1, std::memory_order_release);
    scheduler.WakeAll(version_);
  }

  size_t ready_count() {
    std::lock_guard lock(mutex_);
    return ready_.size();
  }

  bool Stopped() {
    if (ticket_ != nullptr && ticket_->cancel_requested()) {
      Stop(Status(StatusCode::kCancelled, "the restore was cancelled"));
    } else if (deadline_ns_ != io::kNoDeadline &&
               core_->world_.scheduler->MonotonicNs() >= deadline_ns_) {
      Stop(Status(StatusCode::kDeadlineExceeded, "the restore took too long"));
    }
    std::lock_guard lock(mutex_);
    return stopped_;
  }

  void Stop(Status status) {
    std::lock_guard lock(mutex_);
    if (!stopped_ && status_.ok()) status_ = std::move(status);
    stopped_ = true;
  }

  uint64_t FirstPosition(size_t first_job, size_t job_count) const {
    uint64_t first = UINT64_MAX;
    for (size_t i = first_job; i < first_job + job_count; ++i) {
      for (const engine::RecordPiece& piece : cold_[i].pieces) first = std::min(first, piece.begin);
    }
    return first;
  }

  // Damage costs what lies behind it: the first position that cannot be had is the limit. What
  // begins before it is still looked at, since it may be damaged as well.
  void Fail(const Status& status, size_t first_job, size_t job_count) {
    const uint64_t restorable = FirstPosition(first_job, job_count);
    std::lock_guard lock(mutex_);
    if (stopped_ || restorable >= restorable_.load(std::memory_order_relaxed)) return;
    restorable_.store(restorable, std::memory_order_relaxed);
    status_ = Status(status.code(), std::string(status.message()) + "; restorable up to position " +
                                        std::to_string(restorable));
  }

  bool Wanted(size_t first_job, size_t job_count) const {
    const uint64_t restorable = restorable_.load(std::memory_order_relaxed);
    return restorable == UINT64_MAX || FirstPosition(first_job, job_count) < restorable;
  }

  bool WorkOnOne() {
    Loaded loaded;
    {
      std::lock_guard lock(mutex_);
      if (ready_.empty()) return false;
      loaded = ready_.front();
      ready_.pop_front();
    }
    const ReadWindow& window = windows_[loaded.window];
    for (size_t i = 0; i < window.job_count && !Stopped(); ++i) {
      if (!Wanted(window.first_job + i, 1)) continue;
      const RecordJob& job = cold_[window.first_job + i];
      const std::span<const std::byte> record = buffers_[loaded.buffer].span().subspan(
          job.location.offset - window.offset, job.read_bytes);
      const Status status = scatterer_->Scatter(job, record, true);
      if (!status.ok()) Fail(status, window.first_job + i, 1);
    }
    GiveBack(loaded.buffer);
    version_.fetch_add(1, std::memory_order_release);
    core_->world_.scheduler->WakeAll(version_);
    return true;
  }

  StoreCore* const core_;
  const RestorePlan& plan_;
  engine::Scatterer* const scatterer_;
  const TicketState* const ticket_;
  const uint64_t deadline_ns_;
  std::vector<RecordJob> cold_;
  std::vector<ReadWindow> windows_;
  std::vector<AlignedBuffer> buffers_;

  // The calling thread's.
  std::vector<io::Request> requests_;
  std::vector<io::Request*> free_requests_;
  std::vector<size_t> left_;       // Reads in flight, by buffer.
  std::vector<size_t> of_buffer_;  // Which window a buffer is for.
  std::shared_ptr<io::File> file_;
  uint64_t file_segment_ = 0;
  std::vector<std::shared_ptr<io::File>> files_;  // Open while reads are in flight.

  std::mutex mutex_;
  std::deque<Loaded> ready_;
  std::vector<size_t> free_;
  uint32_t posted_ = 0;    // Helpers that were asked for and have not started.
  bool finished_ = false;  // None may start any more.
  bool stopped_ = false;
  Status status_;
  std::atomic<uint64_t> restorable_{UINT64_MAX};  // The first position found damaged.
  std::atomic<uint32_t> helpers_{0};
  std::atomic<uint32_t> version_{0};  // Changes when a buffer is freed or a helper leaves.
};

AlignedBuffer StoreCore::TakeReadBuffer(uint64_t bytes) {
  const uint64_t wanted = std::max(bytes, engine::kReadWindowBytes);
  {
    std::lock_guard lock(read_buffers_mutex_);
    for (auto it = read_buffers_.begin(); it != read_buffers_.end(); ++it) {
      if (it->size() < wanted) continue;
      AlignedBuffer buffer = std::move(*it);
      read_buffers_.erase(it);
      return buffer;
    }
  }
  return AlignedBuffer::TryAllocate(options_.allocator, wanted, io::kBlockBytes);
}

void StoreCore::ReturnReadBuffer(AlignedBuffer buffer) {
  if (buffer.size() > 2 * engine::kReadWindowBytes) return;
  std::lock_guard lock(read_buffers_mutex_);
  if (read_buffers_.size() < engine::kReadWindows) read_buffers_.push_back(std::move(buffer));
}

// The tree knows a record from its reservation on; another thread may still be copying its payload.
wal::Pinned StoreCore::FindHot(const wal::Location& location, uint32_t bytes) {
  constexpr uint64_t kPauseNs = 5'000;
  wal::Pinned hot = log_->FindHot(location.segment, location.offset, bytes);
  while (hot.owner != nullptr && !wal::IsSealed(hot.bytes)) world_.scheduler->Sleep(kPauseNs);
  return hot;
}

Result<RestoreResult> StoreCore::Restore(BranchId id, const RestoreRequest& request,
                                         LayerProgress* progress, const TicketState* ticket) {
  const Use use(this);
  const uint64_t started_ns = world_.scheduler->MonotonicNs();
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(FlushJoined(id));
  RestorePlan plan;
  {
    std::lock_guard lock(mutex_);
    const engine::Head* head = tree_.FindHead(static_cast<uint64_t>(id));
    if (head == nullptr) {
      return Status(StatusCode::kNotFound,
                    "branch #" + std::to_string(static_cast<uint64_t>(id)) + " does not exist");
    }
    CAIRN_ASSIGN_OR_RETURN(plan, engine::PlanRestore(tree_, *head, request));
  }
  if (progress != nullptr) {
    size_t layers = 0;
    for (size_t i = 0; request.into != nullptr && i < request.into->groups.size(); ++i) {
      layers += request.into->groups[i].planes[0].layer_bases.size();
    }
    if (progress->layers.size() < layers) {
      return Status(StatusCode::kInvalidArgument,
                    "progress has room for " + std::to_string(progress->layers.size()) +
                        " layers; the view has " + std::to_string(layers));
    }
  }
  engine::Scatterer scatterer(plan, request, manifest_.store, progress);
  Status status;
  std::vector<RecordJob> cold;
  for (const RecordJob& job : plan.jobs) {
    const wal::Pinned hot = FindHot(job.location, job.read_bytes);
    if (hot.owner == nullptr) {
      cold.push_back(job);
      continue;
    }
    status = scatterer.Scatter(job, hot.bytes, false);
    if (!status.ok()) break;
    if (ticket != nullptr && ticket->cancel_requested()) {
      status = Status(StatusCode::kCancelled, "the restore was cancelled");
      break;
    }
  }
  const uint64_t hot_bytes = scatterer.bytes();
  const uint64_t cold_records = cold.size();
  if (status.ok()) {
    const auto job =
        std::make_shared<RestoreJob>(this, plan, &scatterer, ticket, Deadline(request.timeout_ns));
    status = job->Run(std::move(cold));
  }
  if (!status.ok()) {
    CountFailedRestore(status.code());
    return status;
  }
  scatterer.FinishEmptyLayers();
  counters_.restores.fetch_add(1, std::memory_order_relaxed);
  counters_.hot_records.fetch_add(plan.jobs.size() - cold_records, std::memory_order_relaxed);
  counters_.hot_bytes.fetch_add(hot_bytes, std::memory_order_relaxed);
  counters_.log_records.fetch_add(cold_records, std::memory_order_relaxed);
  counters_.log_bytes.fetch_add(scatterer.bytes() - hot_bytes, std::memory_order_relaxed);
  restore_latency_.Add(world_.scheduler->MonotonicNs() - started_ns);
  return RestoreResult{.begin = plan.begin,
                       .end = plan.end,
                       .kv_ends = std::move(plan.kv_ends),
                       .bytes = scatterer.bytes(),
                       .hot_bytes = hot_bytes};
}

Result<Ticket> StoreCore::RestoreAsync(BranchId id, const RestoreRequest& request,
                                       LayerProgress* progress) {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  auto state = std::make_shared<TicketState>(
      world_, request.queue == nullptr ? nullptr : request.queue->state(), request.user_data);
  state->is_job = true;
  executor_->Post([self = shared_from_this(), id, request, progress, state] {
    if (!state->BeginJob()) return;
    state->Finish(self->Restore(id, request, progress, state.get()).status());
  });
  return Ticket(state);
}

Result<std::vector<TokenId>> StoreCore::ReadTokens(BranchId id, uint64_t begin, uint64_t end) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t length, Length(id));
  if (begin > end || end > length) {
    return Status(StatusCode::kInvalidArgument, "tokens [" + std::to_string(begin) + ", " +
                                                    std::to_string(end) + ") of a branch of " +
                                                    std::to_string(length));
  }
  std::vector<TokenId> tokens(end - begin);
  if (tokens.empty()) return tokens;
  RestoreRequest request;
  request.begin = begin;
  request.end = end;
  request.tokens = tokens;
  CAIRN_RETURN_IF_ERROR(Restore(id, request, nullptr, nullptr).status());
  return tokens;
}

Result<Branch::StateAt> StoreCore::StateAt(BranchId id, uint64_t position, bool sampler) {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  CAIRN_RETURN_IF_ERROR(FlushJoined(id));
  engine::Mark mark;
  {
    std::lock_guard lock(mutex_);
    const engine::Head* head = tree_.FindHead(static_cast<uint64_t>(id));
    if (head == nullptr) {
      return Status(StatusCode::kNotFound,
                    "branch #" + std::to_string(static_cast<uint64_t>(id)) + " does not exist");
    }
    const engine::Mark* found = tree_.FindMark(*head, sampler, position);
    if (found == nullptr) {
      return Status(StatusCode::kNotFound,
                    std::string("no ") + (sampler ? "sampler state" : "metadata") +
                        " at or before position " + std::to_string(position));
    }
    mark = *found;
  }
  const wal::Location& at = mark.location;
  const wal::Pinned hot = FindHot(at, at.bytes);
  AlignedBuffer buffer;
  std::span<const std::byte> bytes = hot.bytes;
  if (hot.owner == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> file, log_->OpenSegment(at.segment));
    const uint64_t begin = at.offset / io::kBlockBytes * io::kBlockBytes;
    const uint64_t end =
        (at.offset + at.bytes + io::kBlockBytes - 1) / io::kBlockBytes * io::kBlockBytes;
    buffer = TakeReadBuffer(end - begin);
    if (buffer.empty()) return Status(StatusCode::kOutOfMemory, "reading a sampler state");
    CAIRN_RETURN_IF_ERROR(file->Read(begin, buffer.span().first(end - begin)));
    bytes = buffer.span().subspan(at.offset - begin, at.bytes);
  }
  CAIRN_ASSIGN_OR_RETURN(const wal::RecordView record,
                         wal::ParseRecord(bytes, at, manifest_.store));
  if (mark.strip >= record.strip_count()) {
    return Status(StatusCode::kCorruption, "log segment " + std::to_string(at.segment) +
                                               ", offset " + std::to_string(at.offset) +
                                               ": a state's strip is missing");
  }
  CAIRN_RETURN_IF_ERROR(record.VerifyStrip(bytes, mark.strip, manifest_.store));
  const std::span<const std::byte> state =
      bytes.subspan(record.strip_offset(mark.strip), record.strip(mark.strip).bytes);
  Branch::StateAt result;
  result.position = mark.position;
  if (sampler) {
    CAIRN_ASSIGN_OR_RETURN(result.sampler, engine::DecodeSampler(state));
  } else {
    CAIRN_ASSIGN_OR_RETURN(result.metadata, engine::DecodeMetadata(state));
  }
  if (!buffer.empty()) ReturnReadBuffer(std::move(buffer));
  return result;
}

}  // namespace cairn
