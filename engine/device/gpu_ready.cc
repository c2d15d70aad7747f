// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_ready.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

GpuReady::~GpuReady() {
  if (has_event_) waits_.device().Return(event_);
}

Status GpuReady::Adopt(uintptr_t handle) {
  CAIRN_CHECK(!has_event_);
  if (handle == 0) return Status::Ok();
  CAIRN_ASSIGN_OR_RETURN(event_, waits_.device().AdoptEvent(handle));
  has_event_ = true;
  reached_.store(!CAIRN_KEPT(kGpuReady), std::memory_order_release);
  return Status::Ok();
}

bool GpuReady::Reached() {
  if (reached_.load(std::memory_order_acquire)) return true;
  const Result<bool> reached =
      CatchBadAlloc([&]() -> Result<bool> { return waits_.device().Reached(event_); });
  if (!reached.ok()) return true;
  if (*reached) reached_.store(true, std::memory_order_release);
  return *reached;
}

Status GpuReady::Await(uint64_t deadline_ns, const std::function<bool()>& wanted) {
  io::Scheduler& scheduler = waits_.scheduler();
  while (!reached_.load(std::memory_order_acquire)) {
    const uint64_t look_ns = scheduler.MonotonicNs() + kGpuReadyLookNs;
    const Status status = waits_.For(event_, std::min(look_ns, deadline_ns));
    if (status.ok()) {
      reached_.store(true, std::memory_order_release);
    } else if (status.code() != StatusCode::kDeadlineExceeded) {
      return status;
    } else if (scheduler.MonotonicNs() >= deadline_ns) {
      return Status(StatusCode::kDeadlineExceeded, call_ + ": the caller's event was not reached");
    } else if (wanted && !wanted()) {
      return Status(StatusCode::kCancelled, call_ + ": not wanted any more");
    }
  }
  return Status::Ok();
}

}  // namespace cairn::engine
