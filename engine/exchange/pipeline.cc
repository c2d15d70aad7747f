// SPDX-License-Identifier: Apache-2.0
#include "engine/exchange/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "base/core/text.h"
#include "engine/store/store_core.h"

namespace cairn::engine {

namespace {

// Of staging memory: at 1 GiB two buffers of 16 MiB. A larger one is not faster.
constexpr uint64_t kBuffersShare = 8;
constexpr uint64_t kBufferBytesMax = 16u << 20;

}  // namespace

uint64_t ExchangeBufferBytes(const StagingPool& pool) {
  return std::min(pool.max_bytes() / kBuffersShare / 2, kBufferBytesMax);
}

Result<ExchangeBuffers> ExchangeBuffers::Take(StagingPool* pool, uint64_t bytes) {
  if (bytes > pool->max_bytes() / 2) {
    return Status(StatusCode::kInvalidArgument, "max_memory_bytes is too small: two pieces of " +
                                                    BytesText(bytes) + " of KV do not fit the " +
                                                    BytesText(pool->max_bytes()) +
                                                    " that are for staging");
  }
  ExchangeBuffers buffers(pool);
  for (AlignedBuffer& buffer : buffers.buffers_) {
    CAIRN_ASSIGN_OR_RETURN(buffer, pool->Take(bytes));
  }
  return buffers;
}

ExchangeBuffers::~ExchangeBuffers() {
  for (AlignedBuffer& buffer : buffers_) {
    if (!buffer.empty()) pool_->Return(std::move(buffer));
  }
}

struct Helper::Job {
  explicit Job(io::Scheduler& scheduler) : ended(scheduler) {}
  io::Event ended;
  Status status;
};

Status Helper::Start(std::function<Status()> work) {
  CAIRN_RETURN_IF_ERROR(Wait());
  const WriteDeps& deps = core_->write_means();
  job_ = std::make_shared<Job>(*deps.world.scheduler);
  deps.executor->Post([job = job_, work = std::move(work)] {
    job->status = CatchBadAlloc(work);
    job->ended.Set();
  });
  return Status::Ok();
}

Status Helper::Wait() {
  if (job_ == nullptr) return Status::Ok();
  job_->ended.Wait();
  return std::exchange(job_, nullptr)->status;
}

}  // namespace cairn::engine
