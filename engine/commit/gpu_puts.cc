// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/gpu_puts.h"

#include <algorithm>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

Status GpuPuts::Put(uint32_t layer, const KvView& view, uintptr_t ready) {
  CAIRN_ASSIGN_OR_RETURN(auto source, deps_.gpus->Open(staging_->model(), view, ready));
  uint64_t id = 0;
  {
    const MutexLock lock(&mutex_);
    id = ++last_id_;
    pending_.push_back({.id = id, .group = view.groups[0].group, .layer = layer});
  }
  uint64_t arrival = 0;
  const Status posted = CatchBadAlloc([&] {
    // The caller's KvView need not live on; the memory that it names does.
    const auto run = std::make_shared<std::function<void()>>(
        [puts = shared_from_this(), store = deps_.callbacks->Hold(), id, view, layer, source] {
          puts->Run(id, view, layer, source.get());
        });
    arrival = deps_.ready_poller->Post(
        {.arrived = [source] { return source->ready().Reached(); }, .run = run});
    return Status::Ok();
  });
  if (!posted.ok()) {
    End(id, Status::Ok(), /*ran=*/false);
    return posted;
  }
  bool stopped = false;
  {
    const MutexLock lock(&mutex_);
    stopped = stopped_;
    for (Pending& one : pending_) {
      if (one.id == id) one.arrival = arrival;
    }
  }
  if (stopped && deps_.ready_poller->Withdraw(arrival)) End(id, Status::Ok(), /*ran=*/false);
  return Status::Ok();
}

bool GpuPuts::IsPending(uint32_t group, uint32_t layer) {
  const MutexLock lock(&mutex_);
  return std::any_of(pending_.begin(), pending_.end(),
                     [&](const Pending& one) { return one.group == group && one.layer == layer; });
}

void GpuPuts::Run(uint64_t id, const KvView& view, uint32_t layer, GpuSource* source) {
  bool stopped = false;
  {
    const MutexLock lock(&mutex_);
    stopped = stopped_;
    if (!stopped) ++running_;
  }
  if (stopped) {
    End(id, Status::Ok(), /*ran=*/false);
    return;
  }
  const auto wanted = [this] {
    const MutexLock lock(&mutex_);
    return !stopped_ && (committed_ || deps_.lifecycle->open().load());
  };
  Status gathered = CatchBadAlloc([&]() -> Status {
    CAIRN_RETURN_IF_ERROR(source->ready().Await(io::kNoDeadline, wanted));
    CAIRN_RETURN_IF_ERROR(source->Prepare());
    return staging_->PutFromGpu(*source, view.groups[0], layer);
  });
  End(id, std::move(gathered), /*ran=*/true);
}

void GpuPuts::End(uint64_t id, Status status, bool ran) {
  {
    const MutexLock lock(&mutex_);
    std::erase_if(pending_, [&](const Pending& one) { return one.id == id; });
    if (failed_.ok()) failed_ = std::move(status);
    if (ran) --running_;
  }
  version_.fetch_add(1, std::memory_order_release);
  deps_.world.scheduler->WakeAll(version_);
}

bool GpuPuts::HasEnded() {
  const MutexLock lock(&mutex_);
  return pending_.empty();
}

Arrival GpuPuts::arrival() {
  const auto puts = shared_from_this();
  {
    const MutexLock lock(&mutex_);
    committed_ = true;
  }
  return {.arrived = [puts] { return puts->HasEnded(); },
          .await = [puts](uint64_t deadline_ns,
                          const auto& wanted) { return puts->Await(deadline_ns, wanted); },
          .give_up = [puts] { puts->Stop(); }};
}

void GpuPuts::Uncommit() {
  const MutexLock lock(&mutex_);
  committed_ = false;
}

Status GpuPuts::Await(uint64_t deadline_ns, const std::function<bool()>& wanted) {
  io::Scheduler& scheduler = *deps_.world.scheduler;
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    if (HasEnded()) break;
    const uint64_t now_ns = scheduler.MonotonicNs();
    if (now_ns >= deadline_ns) {
      return Status(StatusCode::kDeadlineExceeded, "draft: a layer did not arrive");
    }
    if (!wanted()) return Status(StatusCode::kCancelled, "draft: not wanted any more");
    scheduler.Wait(version_, seen, std::min(deadline_ns, now_ns + kGpuReadyLookNs));
  }
  const MutexLock lock(&mutex_);
  return failed_;
}

void GpuPuts::Stop() {
  while (true) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    uint64_t withdrawn = 0;  // The put that is waited for next.
    uint64_t arrival = 0;
    {
      const MutexLock lock(&mutex_);
      stopped_ = true;
      const auto next = std::find_if(pending_.begin(), pending_.end(),
                                     [](const Pending& one) { return one.arrival != 0; });
      if (next != pending_.end()) {
        withdrawn = next->id;
        arrival = std::exchange(next->arrival, 0);
      } else if (running_ == 0) {
        return;
      }
    }
    if (arrival == 0) {
      deps_.world.scheduler->Wait(version_, seen, io::kNoDeadline);
    } else if (deps_.ready_poller->Withdraw(arrival)) {
      End(withdrawn, Status::Ok(), /*ran=*/false);
    }
  }
}

}  // namespace cairn::engine
