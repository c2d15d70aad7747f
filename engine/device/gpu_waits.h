// SPDX-License-Identifier: Apache-2.0
//
// Waits for work of a device, in the world's scheduler. A device that could not be asked for
// kGpuAskNs counts as lost; then it is unknown which memory it still touches.
//
// Thread-safe. No lock may be held around calls. Errors are those of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/io/world.h"
#include "gpu/device.h"

namespace cairn::engine {

class GpuWaits {
 public:
  GpuWaits(std::shared_ptr<gpu::Device> device, std::shared_ptr<io::Scheduler> scheduler)
      : device_(std::move(device)), scheduler_(std::move(scheduler)) {}

  gpu::Device& device() const { return *device_; }
  io::Scheduler& scheduler() const { return *scheduler_; }

  // As Device::Wait; asks again if the query fails.
  Status For(gpu::Event event, uint64_t deadline_ns) const;
  // After a failure: waits for all work in the stream. False: it is unknown whether that ended, so
  // its memory must never be used again.
  bool Drain(gpu::Stream stream, gpu::Event event) const;

 private:
  const std::shared_ptr<gpu::Device> device_;
  const std::shared_ptr<io::Scheduler> scheduler_;
};

}  // namespace cairn::engine
