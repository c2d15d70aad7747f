// SPDX-License-Identifier: Apache-2.0
//
// Reads from the device in windows, several in flight. Each piece is worked on (verified, decoded,
// scattered) by the caller's thread or by an executor job while the disk goes on with the next. A
// buffer is reused once its window was worked on and no hold on it is left (sink.h); Run returns
// when all buffers are back.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "engine/config/constants.h"
#include "engine/restore/plan/plan.h"
#include "engine/restore/plan/read_pool.h"
#include "engine/restore/plan/restore_item.h"
#include "engine/restore/plan/sink.h"

namespace cairn::engine {

// How much is asked of the device at once.
struct ReadLimits {
  uint64_t piece_bytes = 0;
  uint64_t in_flight_bytes = 0;  // One piece is always allowed.
  // Whether it waits in line for memory. The space thread does not: others wait for the room it
  // makes.
  bool in_line = false;
};

// Services that a pipeline needs from its owner.
class PipelineCallbacks {
 public:
  virtual ~PipelineCallbacks() = default;
  // The file of a job; stays open as long as the pointer lives. `waits`: see io::FileCache.
  virtual Result<std::shared_ptr<io::File>> OpenFor(const ReadJob& job, bool waits) = 0;
  // Called from several threads at once. `bytes` are those of the job, as they came from the
  // device. On failure `first_position`, which is that of the job, may be set to a later one.
  virtual Status Work(const ReadJob& job, const ReadBytes& bytes, uint64_t* first_position) = 0;
  // Called by the thread that has worked on all its jobs in this buffer, which it was to work on. A
  // failure in here fails whole items, which the callbacks know.
  virtual void WindowDone(std::span<const ReadJob> jobs, size_t buffer) = 0;
  // Called on the thread that runs the pipeline, before a window is read. May wait; an error fails
  // the window.
  virtual Status BeforeRead(uint64_t bytes) = 0;
  virtual ReadLimits Limits() const = 0;
  // The outcome of the item that a job belongs to: damage and cancellation end there.
  virtual ItemOutcome& OutcomeOf(const ReadJob& job) = 0;
  // Whether any item is still wanted.
  virtual bool AnyWanted() = 0;
  // Stops all items that lack something.
  virtual void StopAll(const Status& status) = 0;
  // As RestoreSink::Reclaim, for all sinks.
  virtual bool Reclaim(uint64_t deadline_ns) = 0;
};

// Shared by the calling thread and the executor jobs that help it.
class ReadPipeline final : public BufferLender {
 public:
  // The callbacks outlive Run.
  ReadPipeline(io::World world, io::Executor* executor, uint32_t executor_threads, ReadPool* pool,
               PipelineCallbacks* callbacks, uint64_t deadline_ns);

  // Returns when every job was worked on or is not wanted any more, and no memory is touched any
  // more. Jobs that follow each other should be neighbours on the device. If an item has several
  // damages, the one at the lowest position is reported. May be called again with jobs that follow
  // from earlier ones: outcomes carry over, so after damage only jobs below it are worked on.
  void Run(std::vector<ReadJob> jobs);

  // --- BufferLender
  void Keep(size_t buffer) override;
  void Release(size_t buffer) override;

 private:
  struct Loaded {
    size_t window = 0;
    size_t buffer = 0;
  };
  Status TakeBuffers();
  void ReadAll();
  void SubmitMore(io::Queue* queue, size_t* next);
  void AwaitHelpers();
  void AwaitHolds();
  bool TakeFree(size_t* buffer);
  void Free(size_t buffer);
  Status OpenFor(const ReadJob& job, io::Queue* queue);
  Status Submit(io::Queue* queue, size_t index, size_t buffer);
  void Collect(io::Request* request);
  void Help();
  size_t ready_count();
  bool Stopped();
  void Stop(const Status& status);
  void FailWindow(const ReadWindow& window, const Status& status);
  bool Wanted(const ReadJob& job) const;
  bool Wanted(const ReadWindow& window) const;
  bool WorkOnOne(ScratchBuffers* room);

  const io::World world_;
  io::Executor* const executor_;
  const uint32_t executor_threads_;
  ReadPool* const pool_;
  PipelineCallbacks* const callbacks_;
  const ReadLimits limits_;
  const uint64_t deadline_ns_;
  std::vector<ReadJob> jobs_;
  std::vector<ReadWindow> windows_;
  bool small_ = false;       // Over before another thread has woken up.
  MemoryLine::Share share_;  // For the first of these.
  std::vector<ReadBuffer> buffers_;

  // The calling thread's.
  std::array<io::Request, kReadsInFlightMax> requests_;
  std::vector<io::Request*> free_requests_;
  uint64_t in_flight_bytes_ = 0;
  std::vector<size_t> left_;                      // Reads in flight, by buffer...
  std::vector<std::shared_ptr<io::File>> files_;  // ...and their file.
  std::vector<size_t> of_buffer_;                 // Which window a buffer is for.
  std::shared_ptr<io::File> file_;                // The one opened last...
  const ReadJob* file_job_ = nullptr;             // ...and for which job.

  Mutex mutex_;
  std::vector<Loaded> ready_
      CAIRN_GUARDED_BY(mutex_);  // In the order of their reads. Has room for all.
  std::vector<size_t> free_ CAIRN_GUARDED_BY(mutex_);
  // For each buffer that is in use: its read, then its holds.
  std::vector<uint32_t> users_ CAIRN_GUARDED_BY(mutex_);
  uint32_t posted_ CAIRN_GUARDED_BY(mutex_) =
      0;  // Helpers that were asked for and have not started.
  bool finished_ CAIRN_GUARDED_BY(mutex_) = false;  // No helper may start any more.
  std::atomic<bool> stopped_{false};
  std::atomic<uint32_t> holds_{0};  // On all buffers.
  std::atomic<uint32_t> helpers_{0};
  std::atomic<uint32_t> version_{0};  // Changes when a buffer is freed or a helper leaves.
};

}  // namespace cairn::engine
