// SPDX-License-Identifier: Apache-2.0
//
// Memory for what kernels know of the views of one restore (gpu_views.h): pinned, to be written,
// and as much of the device, to be copied to. Small ones are kept for the next restores.
//
// Thread-safe. Return may wait for the device; no lock may be held around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/core/mutex.h"
#include "engine/restore/gpu_waits.h"

namespace cairn::engine {

class GpuRooms {
 public:
  struct Room {
    gpu::Stream stream;
    gpu::Event copied;
    std::byte* pinned = nullptr;
    std::byte* on_device = nullptr;
    uint64_t bytes = 0;  // Of either. 0: there is none.
    bool has_stream = false, has_event = false;
  };

  explicit GpuRooms(const GpuWaits* waits) : waits_(*waits) {}
  ~GpuRooms();  // All came back.
  GpuRooms(const GpuRooms&) = delete;
  GpuRooms& operator=(const GpuRooms&) = delete;

  // kOutOfMemory, and other errors of the device.
  Result<Room> Take(uint64_t bytes);
  // What was enqueued in its stream ends before.
  void Return(const Room& room);

 private:
  void Free(const Room& room);

  const GpuWaits& waits_;
  Mutex mutex_;
  std::vector<Room> kept_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
