// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/gpu_puts.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/constants.h"

namespace cairn::engine {

Status GpuPuts::Put(uint32_t layer, const KvView& view, uintptr_t ready) {
  CAIRN_ASSIGN_OR_RETURN(auto source, means_.gpus->Open(staging_->model(), view, ready));
  // The caller's KvView need not live on, what it names does.
  const auto job = [puts = shared_from_this(), store = means_.host->Hold(), view, layer, source] {
    puts->Run(view, layer, source.get());
  };
  const auto run = std::make_shared<std::function<void()>>(job);
  pending_.fetch_add(1, std::memory_order_acq_rel);
  const Status posted = Guarded([&] {
    means_.arrivals->Post({.arrived = [source] { return source->ready().Reached(); }, .run = run});
    return Status::Ok();
  });
  if (!posted.ok()) End(posted, /*ran=*/false);
  return posted;
}

void GpuPuts::Run(const KvView& view, uint32_t layer, GpuSource* source) {
  {
    const MutexLock lock(&mutex_);
    if (stopped_) return;
    ++running_;
  }
  const auto wanted = [this] {
    const MutexLock lock(&mutex_);
    return !stopped_;
  };
  End(Guarded([&]() -> Status {
        CAIRN_RETURN_IF_ERROR(source->ready().Await(io::kNoDeadline, wanted));
        return staging_->PutFromGpu(*source, view.groups[0], layer);
      }),
      /*ran=*/true);
}

void GpuPuts::End(Status status, bool ran) {
  {
    const MutexLock lock(&mutex_);
    if (failed_.ok()) failed_ = std::move(status);
    if (ran) --running_;
  }
  pending_.fetch_sub(1, std::memory_order_acq_rel);
  version_.fetch_add(1, std::memory_order_release);
  means_.world.scheduler->WakeAll(version_);
}

Arrival GpuPuts::arrival() {
  const auto puts = shared_from_this();
  return {.arrived = [puts] { return puts->pending_.load(std::memory_order_acquire) == 0; },
          .await = [puts](uint64_t deadline_ns, const std::function<bool()>& wanted) -> Status {
            io::Scheduler& scheduler = *puts->means_.world.scheduler;
            while (true) {
              const uint32_t seen = puts->version_.load(std::memory_order_acquire);
              if (puts->pending_.load(std::memory_order_acquire) == 0) break;
              const uint64_t now_ns = scheduler.MonotonicNs();
              if (now_ns >= deadline_ns) {
                return Status(StatusCode::kDeadlineExceeded, "draft: a layer did not arrive");
              }
              if (!wanted()) return Status(StatusCode::kCancelled, "draft: not wanted any more");
              scheduler.Wait(puts->version_, seen, std::min(deadline_ns, now_ns + kGpuReadyLookNs));
            }
            const MutexLock lock(&puts->mutex_);
            return puts->failed_;
          }};
}

void GpuPuts::Stop() {
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    {
      const MutexLock lock(&mutex_);
      stopped_ = true;
      if (running_ == 0) return;
    }
    means_.world.scheduler->Wait(version_, seen, io::kNoDeadline);
  }
}

}  // namespace cairn::engine
