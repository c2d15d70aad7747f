// SPDX-License-Identifier: Apache-2.0
//
// Pairs of pinned memory and as much device memory, with a stream that copies between them: for the
// kernels' description of the views of one call (gpu_views.h), and for rows on their way to the
// host (gpu_source.h). Some are kept for the next calls.
//
// Thread-safe. Return may wait for the device; no lock may be held around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/core/mutex.h"
#include "engine/gpu/gpu_waits.h"

namespace cairn::engine {

class GpuRooms {
 public:
  struct Room {
    gpu::Stream stream;
    gpu::Event copied;
    std::byte* pinned = nullptr;
    std::byte* on_device = nullptr;
    uint64_t bytes = 0;  // Of either memory. 0: there is none.
    bool has_stream = false, has_event = false;
  };

  struct Limits {
    uint64_t bytes = 0;       // The least size of a room.
    uint64_t kept_bytes = 0;  // Larger ones are not kept,
    size_t kept = 0;          // nor are more than these.
  };
  GpuRooms(const GpuWaits* waits, const Limits& limits) : waits_(*waits), limits_(limits) {
    kept_.reserve(limits.kept);  // Giving back must not fail.
  }
  ~GpuRooms();  // All were returned.
  GpuRooms(const GpuRooms&) = delete;
  GpuRooms& operator=(const GpuRooms&) = delete;

  // Never waits. kOutOfMemory, and other errors of the device.
  Result<Room> Take(uint64_t bytes);
  // Waits until the work in its stream has ended.
  void Return(const Room& room);
  void Clear();  // Frees the kept rooms; later ones are not kept.

 private:
  void Free(const Room& room);

  const GpuWaits& waits_;
  const Limits limits_;
  Mutex mutex_;
  std::vector<Room> kept_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
