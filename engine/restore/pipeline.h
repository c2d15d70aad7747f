// SPDX-License-Identifier: Apache-2.0
//
// Reads what lies on the device in windows, several in flight, and hands every piece to be worked
// on (verified, decoded, scattered) by the caller's thread or an executor job while the disk goes
// on with the next.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/io/executor.h"
#include "engine/commit/constants.h"
#include "engine/commit/ticket.h"
#include "engine/restore/plan.h"
#include "engine/restore/read_pool.h"

namespace cairn::engine {

// How much is asked of the device at once.
struct ReadLimits {
  uint64_t piece_bytes = 0;
  uint64_t in_flight_bytes = 0;  // One piece always may be.
  // Whether it stands in line for memory. Not whoever others wait for.
  bool in_line = false;
};

// What a pipeline asks of the store around it.
class PipelineHost {
 public:
  virtual ~PipelineHost() = default;
  // The file of a job; stays open as long as the pointer.
  virtual Result<std::shared_ptr<io::File>> OpenFor(const ReadJob& job) = 0;
  // From several threads at once. `bytes` are those of the job, as they came from the device. On
  // failure `first_position`, which is that of the job, may be set to one behind it.
  virtual Status Work(const ReadJob& job, std::span<const std::byte> bytes,
                      uint64_t* first_position) = 0;
  // On the thread that runs the pipeline, before a window is read. May wait; an error fails the
  // window.
  virtual Status BeforeRead(uint64_t bytes) = 0;
  virtual ReadLimits Limits() const = 0;
};

// One restore. Shared by the calling thread and executor jobs that help it.
class ReadPipeline : public std::enable_shared_from_this<ReadPipeline> {
 public:
  // `ticket` may be null. The host outlives Run.
  ReadPipeline(io::World world, io::Executor* executor, uint32_t executor_threads, ReadPool* pool,
               PipelineHost* host, const TicketState* ticket, uint64_t deadline_ns);

  // Returns when every job was worked on, or one failed and nothing is touched any more. Jobs that
  // are next to each other should be neighbours on the device. Of several damages that at the
  // lowest position is reported. May be called again, with jobs that follow from those before:
  // what these said counts on, so after damage only jobs below it are looked at.
  Status Run(std::vector<ReadJob> jobs);

 private:
  struct Loaded {
    size_t window = 0;
    size_t buffer = 0;
  };
  Status TakeBuffers();
  Status ReadAll();
  bool TakeFree(size_t* buffer);
  void GiveBack(size_t buffer);
  Status Submit(io::Queue* queue, size_t index, size_t buffer);
  void Collect(io::Request* request);
  void Help();
  size_t ready_count();
  bool Stopped();
  void Stop(Status status);
  uint64_t FirstPosition(size_t first_job, size_t job_count) const;
  void Fail(const Status& status, uint64_t first_position);
  bool Wanted(size_t first_job, size_t job_count) const;
  bool WorkOnOne();

  const io::World world_;
  io::Executor* const executor_;
  const uint32_t executor_threads_;
  ReadPool* const pool_;
  PipelineHost* const host_;
  const ReadLimits limits_;
  const TicketState* const ticket_;
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
  std::vector<size_t> left_;                      // Reads in flight, by buffer.
  std::vector<size_t> of_buffer_;                 // Which window a buffer is for.
  std::vector<std::shared_ptr<io::File>> files_;  // Open while reads are in flight; newest last.
  const ReadJob* file_job_ = nullptr;             // Whose file that is.

  std::mutex mutex_;
  std::vector<Loaded> ready_;  // In the order of their reads. Has room for all.
  std::vector<size_t> free_;
  uint32_t posted_ = 0;    // Helpers that were asked for and have not started.
  bool finished_ = false;  // None may start any more.
  bool stopped_ = false;
  Status status_;
  std::atomic<uint64_t> restorable_{UINT64_MAX};  // The first position found damaged.
  std::atomic<uint32_t> helpers_{0};
  std::atomic<uint32_t> version_{0};  // Changes when a buffer is freed or a helper leaves.
};

}  // namespace cairn::engine
