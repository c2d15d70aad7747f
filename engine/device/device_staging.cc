// SPDX-License-Identifier: Apache-2.0
#include "engine/device/device_staging.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

DeviceStaging::~DeviceStaging() { Clear(); }

void DeviceStaging::Clear() {
  const MutexLock lock(&mutex_);
  for (const Buffers& buffers : kept_) Free(buffers);
  kept_.clear();
}

Result<DeviceStaging::Buffers> DeviceStaging::Take(uint64_t bytes) {
  Buffers buffers;
  {
    const MutexLock lock(&mutex_);
    const auto fits = std::find_if(kept_.begin(), kept_.end(),
                                   [&](const Buffers& kept) { return kept.bytes >= bytes; });
    if (fits != kept_.end()) {
      buffers = *fits;
      kept_.erase(fits);
      return buffers;
    }
  }
  gpu::Device& device = waits_.device();
  const uint64_t wanted = std::max(bytes, limits_.bytes);
  const Status made = [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(buffers.stream, device.NewStream(gpu::Priority::kLow));
    buffers.has_stream = true;
    CAIRN_ASSIGN_OR_RETURN(buffers.copied, device.NewEvent());
    buffers.has_event = true;
    CAIRN_ASSIGN_OR_RETURN(buffers.pinned, device.Allocate(gpu::Memory::kPinned, wanted));
    CAIRN_ASSIGN_OR_RETURN(buffers.on_device, device.Allocate(gpu::Memory::kDevice, wanted));
    buffers.bytes = wanted;
    return Status::Ok();
  }();
  if (made.ok()) return buffers;
  Free(buffers);
  return made;
}

void DeviceStaging::Return(const Buffers& buffers) {
  if (!waits_.Drain(buffers.stream, buffers.copied)) return;
  {
    const MutexLock lock(&mutex_);
    if (kept_.size() < limits_.kept && buffers.bytes <= limits_.kept_bytes) {
      kept_.push_back(buffers);
      return;
    }
  }
  Free(buffers);
}

void DeviceStaging::Free(const Buffers& buffers) {
  gpu::Device& device = waits_.device();
  if (buffers.on_device != nullptr) device.Free(buffers.on_device);
  if (buffers.pinned != nullptr) device.Free(buffers.pinned);
  if (buffers.has_event) device.Return(buffers.copied);
  if (buffers.has_stream) device.Return(buffers.stream);
}

}  // namespace cairn::engine
