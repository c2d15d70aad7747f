// SPDX-License-Identifier: Apache-2.0
//
// Pairs of pinned and device memory of one size, with a stream that copies between them: for the
// kernels' description of the views of one call (gpu_views.h), and for rows on their way to the
// host (gpu_source.h). Some are kept for the next calls.
//
// Thread-safe. Return may wait for the device; no lock may be held around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/core/mutex.h"
#include "engine/device/gpu_waits.h"

namespace cairn::engine {

class DeviceStaging {
 public:
  struct Buffers {
    gpu::Stream stream;
    gpu::Event copied;
    std::byte* pinned = nullptr;
    std::byte* on_device = nullptr;
    uint64_t bytes = 0;  // The size of each memory. 0: none.
    bool has_stream = false, has_event = false;
  };

  struct Limits {
    uint64_t bytes = 0;       // The least size of a buffers.
    uint64_t kept_bytes = 0;  // Larger ones are not kept,
    size_t kept = 0;          // nor are more than these.
  };
  DeviceStaging(const GpuWaits* waits, const Limits& limits) : waits_(*waits), limits_(limits) {
    kept_.reserve(limits.kept);  // Giving back must not fail.
  }
  ~DeviceStaging();  // All were returned.
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Never waits. kOutOfMemory, and other errors of the device.
  Result<Buffers> Take(uint64_t bytes);
  // Waits until the work in its stream has ended.
  void Return(const Buffers& buffers);
  void Clear();  // Frees the kept buffers; later ones are not kept.

 private:
  void Free(const Buffers& buffers);

  const GpuWaits& waits_;
  const Limits limits_;
  Mutex mutex_;
  std::vector<Buffers> kept_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
