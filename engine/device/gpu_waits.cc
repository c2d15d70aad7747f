// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpu_waits.h"

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"

namespace cairn::engine {

Status GpuWaits::For(gpu::Event event, uint64_t deadline_ns) const {
  const uint64_t until_ns = scheduler_->MonotonicNs() + kGpuAskNs;
  while (true) {
    Status status = device_->Wait(event, deadline_ns);
    if (status.ok() || status.code() == StatusCode::kDeadlineExceeded) return status;
    if (!device_->lost().ok() || scheduler_->MonotonicNs() >= until_ns) return status;
    scheduler_->Sleep(kGpuAskAgainNs);
  }
}

bool GpuWaits::Drain(gpu::Stream stream, gpu::Event event) const {
  const uint64_t until_ns = scheduler_->MonotonicNs() + kGpuAskNs;
  while (true) {
    const bool has_ended = CatchBadAlloc([&]() -> Status {
                             if (!device_->lost().ok())
                               return Status::Ok();  // Nothing runs any more.
                             CAIRN_RETURN_IF_ERROR(device_->Record(stream, event));
                             return For(event, io::kNoDeadline);
                           }).ok();
    if (has_ended) return true;
    if (scheduler_->MonotonicNs() >= until_ns) return !device_->lost().ok();
    scheduler_->Sleep(kGpuAskAgainNs);
  }
}

}  // namespace cairn::engine
