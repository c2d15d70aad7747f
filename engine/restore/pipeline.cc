// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/pipeline.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/constants.h"

namespace cairn::engine {

ReadPipeline::ReadPipeline(io::World world, io::Executor* executor, uint32_t executor_threads,
                           ReadPool* pool, PipelineHost* host, const TicketState* ticket,
                           uint64_t deadline_ns)
    : world_(std::move(world)),
      executor_(executor),
      executor_threads_(executor_threads),
      pool_(pool),
      host_(host),
      limits_(host->Limits()),
      ticket_(ticket),
      deadline_ns_(deadline_ns) {}

Status ReadPipeline::Run(std::vector<ReadJob> jobs) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || jobs.empty()) return status_;
    file_job_ = nullptr;  // It was one of those before.
    files_.clear();
    jobs_ = std::move(jobs);
    windows_ = PlanWindows(jobs_);
  }
  uint64_t bytes = 0;
  for (const ReadWindow& window : windows_) bytes += window.bytes;
  small_ = bytes < kReadHelpBytes;
  if (Status status = TakeBuffers(); !status.ok()) {
    Stop(status);
    return status;
  }
  Status status = ReadAll();
  buffers_.clear();
  share_ = {};
  return status;
}

Status ReadPipeline::TakeBuffers() {
  uint64_t largest = 0;
  for (const ReadWindow& window : windows_) largest = std::max(largest, window.bytes);
  if (limits_.in_line) {
    CAIRN_ASSIGN_OR_RETURN(share_, pool_->line().Take(std::max(largest, kReadWindowBytes), [this] {
      const bool stopped = Stopped();
      std::lock_guard lock(mutex_);
      return stopped ? status_ : Status::Ok();
    }));
  }
  const size_t wanted = std::min<size_t>(kReadWindows, windows_.size());
  free_.clear();
  for (size_t i = 0; i < wanted; ++i) {
    ReadBuffer buffer = pool_->TakeBuffer(largest, /*needed=*/i == 0);
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

// From the first read on nothing may throw: reads and helpers would outlive what they work on.
Status ReadPipeline::ReadAll() {
  io::Scheduler& scheduler = *world_.scheduler;
  std::unique_ptr<io::Queue> queue = pool_->TakeQueue();
  free_requests_.clear();
  for (io::Request& request : requests_) free_requests_.push_back(&request);
  left_.resize(buffers_.size());
  of_buffer_.resize(buffers_.size());
  {
    std::lock_guard lock(mutex_);
    ready_.reserve(buffers_.size());
    finished_ = false;
  }
  size_t next = 0;
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (Stopped()) break;
    for (size_t buffer = 0; next < windows_.size(); ++next) {
      const ReadWindow& window = windows_[next];
      if (!Wanted(window.first_job, window.job_count)) continue;
      if (!TakeFree(&buffer)) break;
      const Status status = Guarded([&] { return Submit(queue.get(), next, buffer); });
      if (!status.ok()) {
        Fail(status, FirstPosition(window.first_job, window.job_count));
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
  pool_->ReturnQueue(std::move(queue));
  while (helpers_.load(std::memory_order_acquire) != 0) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (helpers_.load(std::memory_order_acquire) == 0) break;
    scheduler.Wait(version_, seen, io::kNoDeadline);
  }
  std::lock_guard lock(mutex_);
  return status_;
}

bool ReadPipeline::TakeFree(size_t* buffer) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) return false;
  *buffer = free_.back();
  free_.pop_back();
  return true;
}

void ReadPipeline::GiveBack(size_t buffer) {
  std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

Status ReadPipeline::Submit(io::Queue* queue, size_t index, size_t buffer) {
  const ReadWindow& window = windows_[index];
  const ReadJob& first = jobs_[window.first_job];
  if (file_job_ == nullptr || !first.SameFile(*file_job_)) {
    CAIRN_ASSIGN_OR_RETURN(auto file, host_->OpenFor(first));
    files_.push_back(std::move(file));
    file_job_ = &first;
  }
  CAIRN_RETURN_IF_ERROR(host_->BeforeRead(window.bytes));
  of_buffer_[buffer] = index;
  // Equal pieces: a short one at the end costs as much as a long one.
  const uint64_t pieces = std::max<uint64_t>(1, window.bytes / limits_.piece_bytes);
  const uint64_t piece_bytes = AlignUp((window.bytes + pieces - 1) / pieces, io::kBlockBytes);
  left_[buffer] = (window.bytes + piece_bytes - 1) / piece_bytes;
  for (uint64_t done = 0; done < window.bytes; done += piece_bytes) {
    const uint64_t bytes = std::min(piece_bytes, window.bytes - done);
    while (free_requests_.empty() ||
           (in_flight_bytes_ != 0 && in_flight_bytes_ + bytes > limits_.in_flight_bytes)) {
      Collect(queue->Reap());
    }
    io::Request* request = free_requests_.back();
    free_requests_.pop_back();
    *request = io::Request{};
    request->kind = io::Request::Kind::kRead;
    request->file = files_.back().get();
    request->data = buffers_[buffer].data() + done;
    request->length = bytes;
    request->offset = window.offset + done;
    request->owner = reinterpret_cast<void*>(buffer);
    in_flight_bytes_ += bytes;
    queue->Submit(request);
  }
  return Status::Ok();
}

void ReadPipeline::Collect(io::Request* request) {
  const auto buffer = reinterpret_cast<size_t>(request->owner);
  free_requests_.push_back(request);
  in_flight_bytes_ -= request->length;
  if (!request->status.ok()) {
    const ReadWindow& window = windows_[of_buffer_[buffer]];
    Fail(request->status, FirstPosition(window.first_job, window.job_count));
  }
  if (--left_[buffer] != 0) return;
  bool help = false;
  {
    std::lock_guard lock(mutex_);
    ready_.push_back({of_buffer_[buffer], buffer});
    help = !small_ && !stopped_ && !finished_ && posted_ + helpers_.load() < executor_threads_;
    if (help) ++posted_;
  }
  if (help) {
    const Status posted =
        Guarded([&] { executor_->Post([self = shared_from_this()] { self->Help(); }); });
    if (posted.ok()) return;
    std::lock_guard lock(mutex_);
    --posted_;  // One less helps.
  }
}

// May start late or never (this restore may itself sit on the only executor thread), so only
// helpers that did start are waited for.
void ReadPipeline::Help() {
  {
    std::lock_guard lock(mutex_);
    --posted_;
    if (finished_) return;
    helpers_.fetch_add(1);
  }
  while (!Stopped() && WorkOnOne()) {
  }
  io::Scheduler& scheduler = *world_.scheduler;
  helpers_.fetch_sub(1, std::memory_order_acq_rel);
  version_.fetch_add(1, std::memory_order_release);
  scheduler.WakeAll(version_);
}

size_t ReadPipeline::ready_count() {
  std::lock_guard lock(mutex_);
  return ready_.size();
}

bool ReadPipeline::Stopped() {
  if (ticket_ != nullptr && ticket_->cancel_requested()) {
    Stop(Guarded([] { return Status(StatusCode::kCancelled, "the restore was cancelled"); }));
  } else if (deadline_ns_ != io::kNoDeadline && world_.scheduler->MonotonicNs() >= deadline_ns_) {
    Stop(
        Guarded([] { return Status(StatusCode::kDeadlineExceeded, "the restore took too long"); }));
  }
  std::lock_guard lock(mutex_);
  return stopped_;
}

void ReadPipeline::Stop(Status status) {
  std::lock_guard lock(mutex_);
  if (!stopped_ && status_.ok()) status_ = std::move(status);
  stopped_ = true;
}

uint64_t ReadPipeline::FirstPosition(size_t first_job, size_t job_count) const {
  uint64_t first = UINT64_MAX;
  for (size_t i = first_job; i < first_job + job_count; ++i) {
    first = std::min(first, jobs_[i].first_position);
  }
  return first;
}

// Damage costs what lies behind it: the first position that cannot be had is the limit. What
// begins before it is still looked at, since it may be damaged as well.
void ReadPipeline::Fail(const Status& status, uint64_t restorable) {
  std::lock_guard lock(mutex_);
  if (stopped_ || restorable >= restorable_.load(std::memory_order_relaxed)) return;
  restorable_.store(restorable, std::memory_order_relaxed);
  status_ = status;
  static_cast<void>(Guarded([&] {  // Without memory that is all that is told.
    status_ = Status(status.code(), std::string(status.message()) + "; restorable up to position " +
                                        std::to_string(restorable));
  }));
}

bool ReadPipeline::Wanted(size_t first_job, size_t job_count) const {
  const uint64_t restorable = restorable_.load(std::memory_order_relaxed);
  return restorable == UINT64_MAX || FirstPosition(first_job, job_count) < restorable;
}

bool ReadPipeline::WorkOnOne() {
  Loaded loaded;
  {
    std::lock_guard lock(mutex_);
    if (ready_.empty()) return false;
    loaded = ready_.front();
    ready_.erase(ready_.begin());
  }
  const ReadWindow& window = windows_[loaded.window];
  for (size_t i = 0; i < window.job_count && !Stopped(); ++i) {
    if (!Wanted(window.first_job + i, 1)) continue;
    const ReadJob& job = jobs_[window.first_job + i];
    const std::span<const std::byte> bytes =
        buffers_[loaded.buffer].span().subspan(job.offset - window.offset, job.bytes);
    uint64_t first_position = job.first_position;
    const Status status = Guarded([&] { return host_->Work(job, bytes, &first_position); });
    if (!status.ok()) Fail(status, first_position);
  }
  GiveBack(loaded.buffer);
  version_.fetch_add(1, std::memory_order_release);
  world_.scheduler->WakeAll(version_);
  return true;
}

}  // namespace cairn::engine
