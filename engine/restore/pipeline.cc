// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/pipeline.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

ReadPipeline::ReadPipeline(io::World world, io::Executor* executor, uint32_t executor_threads,
                           ReadPool* pool, PipelineCallbacks* callbacks, uint64_t deadline_ns)
    : world_(std::move(world)),
      executor_(executor),
      executor_threads_(executor_threads),
      pool_(pool),
      callbacks_(callbacks),
      limits_(callbacks->Limits()),
      deadline_ns_(deadline_ns) {}

void ReadPipeline::Run(std::vector<ReadJob> jobs) {
  if (stopped_.load(std::memory_order_acquire) || jobs.empty()) return;
  file_job_ = nullptr;  // It pointed into the jobs before.
  jobs_ = std::move(jobs);
  windows_ = PlanWindows(jobs_);
  uint64_t bytes = 0;
  for (const ReadWindow& window : windows_) bytes += window.bytes;
  small_ = bytes < kReadHelpBytes;
  if (Status status = TakeBuffers(); !status.ok()) {
    Stop(status);
    return;
  }
  ReadAll();
  buffers_.clear();
  file_ = nullptr;
  share_ = {};
}

Status ReadPipeline::TakeBuffers() {
  uint64_t largest = 0;
  for (const ReadWindow& window : windows_) largest = std::max(largest, window.bytes);
  if (limits_.in_line) {
    CAIRN_ASSIGN_OR_RETURN(share_, pool_->line().Take(std::max(largest, kReadWindowBytes), [this] {
      // The outcomes say why.
      if (Stopped() || !callbacks_->AnyWanted()) return Status(StatusCode::kCancelled, "");
      return Status::Ok();
    }));
  }
  const size_t wanted = std::min<size_t>(kReadWindows, windows_.size());
  for (size_t i = 0; i < wanted; ++i) {
    ReadBuffer buffer = pool_->TakeBuffer(largest, /*needed=*/i == 0);
    if (buffer.empty()) break;
    buffers_.push_back(std::move(buffer));
  }
  if (buffers_.empty()) {
    return Status(StatusCode::kOutOfMemory,
                  "restore: no buffer of " + std::to_string(largest) + " bytes");
  }
  const MutexLock lock(&mutex_);
  free_.resize(buffers_.size());
  std::iota(free_.begin(), free_.end(), size_t{0});
  return Status::Ok();
}

// After the first read nothing may throw: reads and helpers would outlive the memory they use.
void ReadPipeline::ReadAll() {
  io::Scheduler& scheduler = *world_.scheduler;
  std::unique_ptr<io::Queue> queue = pool_->queues().Take();
  free_requests_.clear();
  for (io::Request& request : requests_) free_requests_.push_back(&request);
  left_.resize(buffers_.size());
  files_.resize(buffers_.size());
  of_buffer_.resize(buffers_.size());
  {
    const MutexLock lock(&mutex_);
    users_.assign(buffers_.size(), 0);
    ready_.reserve(buffers_.size());
    finished_ = false;
  }
  ScratchBuffers room;
  size_t next = 0;
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (Stopped()) break;
    SubmitMore(queue.get(), &next);
    const bool held = holds_.load(std::memory_order_acquire) != 0;
    if (ready_count() > 1 || (queue->in_flight() == 0 && ready_count() != 0)) {
      WorkOnOne(&room);
    } else if (queue->in_flight() != 0) {
      Collect(queue->Reap());
    } else if (held && callbacks_->Reclaim(deadline_ns_)) {
      continue;
    } else if (next < windows_.size() || helpers_.load(std::memory_order_acquire) != 0) {
      scheduler.Wait(version_, seen, deadline_ns_);
    } else {
      break;
    }
    if (held) callbacks_->Reclaim(0);
  }
  {
    const MutexLock lock(&mutex_);
    finished_ = true;
  }
  while (queue->in_flight() != 0) Collect(queue->Reap());
  pool_->queues().Return(std::move(queue));
  AwaitHelpers();
  AwaitHolds();
}

// Submits as many as there are buffers for.
void ReadPipeline::SubmitMore(io::Queue* queue, size_t* next) {
  for (size_t buffer = 0; *next < windows_.size(); ++*next) {
    const ReadWindow& window = windows_[*next];
    if (!Wanted(window)) continue;
    if (!TakeFree(&buffer)) return;
    const Status status = CatchBadAlloc([&] { return Submit(queue, *next, buffer); });
    if (!status.ok()) {
      FailWindow(window, status);
      Free(buffer);
    }
  }
}

void ReadPipeline::AwaitHelpers() {
  while (helpers_.load(std::memory_order_acquire) != 0) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (helpers_.load(std::memory_order_acquire) == 0) break;
    world_.scheduler->Wait(version_, seen, io::kNoDeadline);
  }
}

// However the run went: buffers go back to the pool only when no copy reads them any more.
void ReadPipeline::AwaitHolds() {
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (holds_.load(std::memory_order_acquire) == 0) return;
    if (!callbacks_->Reclaim(io::kNoDeadline)) {
      world_.scheduler->Wait(version_, seen, io::kNoDeadline);
    }
  }
}

void ReadPipeline::Keep(size_t buffer) {
  holds_.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(&mutex_);
  ++users_[buffer];
}

// The hold that calls this keeps the pipeline alive until it returns.
void ReadPipeline::Release(size_t buffer) {
  Free(buffer);
  holds_.fetch_sub(1, std::memory_order_acq_rel);
  version_.fetch_add(1, std::memory_order_release);
  world_.scheduler->WakeAll(version_);
}

bool ReadPipeline::TakeFree(size_t* buffer) {
  const MutexLock lock(&mutex_);
  if (free_.empty()) return false;
  *buffer = free_.back();
  free_.pop_back();
  users_[*buffer] = 1;
  return true;
}

// The buffer has one user less.
void ReadPipeline::Free(size_t buffer) {
  const MutexLock lock(&mutex_);
  if (--users_[buffer] == 0) free_.push_back(buffer);
}

// A restore holds the files of the windows in flight and one more. If a file cannot be opened it
// closes these first, since they may be all that the process can have.
Status ReadPipeline::OpenFor(const ReadJob& job, io::Queue* queue) {
  if (file_job_ != nullptr && job.SameFile(*file_job_)) return Status::Ok();
  file_job_ = nullptr;
  file_ = nullptr;
  while (true) {
    auto file = callbacks_->OpenFor(job, /*waits=*/queue->in_flight() == 0);
    if (file.ok()) {
      file_ = std::move(*file);
      file_job_ = &job;
      return Status::Ok();
    }
    if (file.status().code() != StatusCode::kIoError || queue->in_flight() == 0) {
      return file.status();
    }
    while (queue->in_flight() != 0) Collect(queue->Reap());
  }
}

Status ReadPipeline::Submit(io::Queue* queue, size_t index, size_t buffer) {
  const ReadWindow& window = windows_[index];
  const ReadJob& first = jobs_[window.first_job];
  CAIRN_RETURN_IF_ERROR(OpenFor(first, queue));
  CAIRN_RETURN_IF_ERROR(callbacks_->BeforeRead(window.bytes));
  of_buffer_[buffer] = index;
  files_[buffer] = file_;
  // Equal pieces: a short one at the end would cost the same as a long one.
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
    request->file = files_[buffer].get();
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
  if (!request->status.ok()) FailWindow(windows_[of_buffer_[buffer]], request->status);
  if (--left_[buffer] != 0) return;
  files_[buffer] = nullptr;
  bool help = false;
  {
    const MutexLock lock(&mutex_);
    ready_.push_back({of_buffer_[buffer], buffer});
    help = !small_ && !stopped_.load(std::memory_order_relaxed) && !finished_ &&
           posted_ + helpers_.load() < executor_threads_;
    if (help) ++posted_;
  }
  if (help) {
    auto self = std::static_pointer_cast<ReadPipeline>(shared_from_this());
    const Status posted =
        CatchBadAlloc([&] { executor_->Post([self = std::move(self)] { self->Help(); }); });
    if (posted.ok()) return;
    const MutexLock lock(&mutex_);
    --posted_;  // One less helps.
  }
}

// A helper may start late or never (this restore may itself occupy the only executor thread), so
// only helpers that did start are waited for.
void ReadPipeline::Help() {
  {
    const MutexLock lock(&mutex_);
    --posted_;
    if (finished_) return;
    helpers_.fetch_add(1);
  }
  {
    ScratchBuffers room;
    while (!Stopped() && WorkOnOne(&room)) {
    }
  }
  io::Scheduler& scheduler = *world_.scheduler;
  helpers_.fetch_sub(1, std::memory_order_acq_rel);
  version_.fetch_add(1, std::memory_order_release);
  scheduler.WakeAll(version_);
}

size_t ReadPipeline::ready_count() {
  const MutexLock lock(&mutex_);
  return ready_.size();
}

bool ReadPipeline::Stopped() {
  if (deadline_ns_ != io::kNoDeadline && world_.scheduler->MonotonicNs() >= deadline_ns_) {
    Stop(CatchBadAlloc(
        [] { return Status(StatusCode::kDeadlineExceeded, "the restore took too long"); }));
  }
  return stopped_.load(std::memory_order_acquire);
}

void ReadPipeline::Stop(const Status& status) {
  if (!stopped_.exchange(true)) callbacks_->StopAll(status);
}

void ReadPipeline::FailWindow(const ReadWindow& window, const Status& status) {
  for (size_t i = 0; i < window.job_count; ++i) {
    const ReadJob& job = jobs_[window.first_job + i];
    callbacks_->OutcomeOf(job).Fail(status, job.first_position);
  }
}

bool ReadPipeline::Wanted(const ReadJob& job) const {
  return callbacks_->OutcomeOf(job).Wants(job.first_position);
}

bool ReadPipeline::Wanted(const ReadWindow& window) const {
  for (size_t i = 0; i < window.job_count; ++i) {
    if (Wanted(jobs_[window.first_job + i])) return true;
  }
  return false;
}

bool ReadPipeline::WorkOnOne(ScratchBuffers* room) {
  Loaded loaded;
  {
    const MutexLock lock(&mutex_);
    if (ready_.empty()) return false;
    loaded = ready_.front();
    ready_.erase(ready_.begin());
  }
  const ReadWindow& window = windows_[loaded.window];
  for (size_t i = 0; i < window.job_count && !Stopped(); ++i) {
    const ReadJob& job = jobs_[window.first_job + i];
    if (!Wanted(job)) continue;
    const ReadBytes bytes(
        buffers_[loaded.buffer].span().subspan(job.offset - window.offset, job.bytes), this,
        loaded.buffer, room);
    uint64_t first_position = job.first_position;
    const Status status =
        CatchBadAlloc([&] { return callbacks_->Work(job, bytes, &first_position); });
    if (!status.ok()) callbacks_->OutcomeOf(job).Fail(status, first_position);
  }
  callbacks_->WindowDone(std::span(jobs_).subspan(window.first_job, window.job_count),
                         loaded.buffer);
  Free(loaded.buffer);
  version_.fetch_add(1, std::memory_order_release);
  world_.scheduler->WakeAll(version_);
  return true;
}

}  // namespace cairn::engine
