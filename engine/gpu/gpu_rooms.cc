// SPDX-License-Identifier: Apache-2.0
#include "engine/gpu/gpu_rooms.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

GpuRooms::~GpuRooms() { Clear(); }

void GpuRooms::Clear() {
  const MutexLock lock(&mutex_);
  for (const Room& room : kept_) Free(room);
  kept_.clear();
}

Result<GpuRooms::Room> GpuRooms::Take(uint64_t bytes) {
  Room room;
  {
    const MutexLock lock(&mutex_);
    const auto fits = std::find_if(kept_.begin(), kept_.end(),
                                   [&](const Room& kept) { return kept.bytes >= bytes; });
    if (fits != kept_.end()) {
      room = *fits;
      kept_.erase(fits);
      return room;
    }
  }
  gpu::Device& device = waits_.device();
  const uint64_t wanted = std::max(bytes, limits_.bytes);
  const Status made = [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(room.stream, device.NewStream(gpu::Priority::kLow));
    room.has_stream = true;
    CAIRN_ASSIGN_OR_RETURN(room.copied, device.NewEvent());
    room.has_event = true;
    CAIRN_ASSIGN_OR_RETURN(room.pinned, device.Allocate(gpu::Memory::kPinned, wanted));
    CAIRN_ASSIGN_OR_RETURN(room.on_device, device.Allocate(gpu::Memory::kDevice, wanted));
    room.bytes = wanted;
    return Status::Ok();
  }();
  if (made.ok()) return room;
  Free(room);
  return made;
}

void GpuRooms::Return(const Room& room) {
  if (!waits_.Drain(room.stream, room.copied)) return;
  {
    const MutexLock lock(&mutex_);
    if (kept_.size() < limits_.kept && room.bytes <= limits_.kept_bytes) {
      kept_.push_back(room);
      return;
    }
  }
  Free(room);
}

void GpuRooms::Free(const Room& room) {
  gpu::Device& device = waits_.device();
  if (room.on_device != nullptr) device.Free(room.on_device);
  if (room.pinned != nullptr) device.Free(room.pinned);
  if (room.has_event) device.Return(room.copied);
  if (room.has_stream) device.Return(room.stream);
}

}  // namespace cairn::engine
