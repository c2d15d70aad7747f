// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/gpu_ring.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::engine {

GpuRing::GpuRing(const GpuWaits* waits) : waits_(*waits) {
  free_.reserve(slots_.size());
  flying_.reserve(slots_.size());
  for (Slot& slot : slots_) free_.push_back(&slot);
}

GpuRing::~GpuRing() {
  CAIRN_CHECK(free_.size() + stuck_ == slots_.size());
  gpu::Device& device = waits_.device();
  for (const Slot* const slot : free_) {
    if (slot->packed != nullptr) device.Free(slot->packed);
    if (slot->told != nullptr) device.Free(slot->told);
    if (slot->has_event) device.Return(slot->done);
    if (slot->has_stream) device.Return(slot->stream);
  }
}

Result<GpuRing::Slot*> GpuRing::Take(uint64_t packed_bytes, uint64_t frames) {
  Slot* slot = nullptr;
  while (slot == nullptr) {
    const uint32_t seen = version_.load(std::memory_order_acquire);
    bool flies = false;
    {
      const MutexLock lock(&mutex_);
      flies = !flying_.empty();
      if (stuck_ == slots_.size()) {
        return Status(StatusCode::kIoError, "gpu: it no longer tells whether work has ended");
      }
      if (!free_.empty()) {
        slot = free_.back();
        free_.pop_back();
      }
    }
    if (slot != nullptr) break;
    if (flies) {
      Await(io::kNoDeadline);
    } else {
      waits_.scheduler().Wait(version_, seen, io::kNoDeadline);  // Others are about to launch.
    }
  }
  const Status prepared = Prepare(slot, packed_bytes, frames);
  if (prepared.ok()) return slot;
  Return(slot);
  return prepared;
}

// Slots are made when they are used, and grow: most restores have nothing larger than a window.
Status GpuRing::Prepare(Slot* slot, uint64_t packed_bytes, uint64_t frames) {
  gpu::Device& device = waits_.device();
  if (!slot->has_stream) {
    CAIRN_ASSIGN_OR_RETURN(slot->stream, device.NewStream(gpu::Priority::kLow));
    slot->has_stream = true;
  }
  if (!slot->has_event) {
    CAIRN_ASSIGN_OR_RETURN(slot->done, device.NewEvent());
    slot->has_event = true;
  }
  if (slot->packed_bytes < packed_bytes) {
    if (slot->packed != nullptr) device.Free(std::exchange(slot->packed, nullptr));
    slot->packed_bytes = 0;
    const uint64_t bytes = std::max(packed_bytes, kGpuSlotBytes);
    CAIRN_ASSIGN_OR_RETURN(slot->packed, device.Allocate(gpu::Memory::kDevice, bytes));
    slot->packed_bytes = bytes;
  }
  if (slot->frames_max < frames) {
    if (slot->told != nullptr) device.Free(std::exchange(slot->told, nullptr));
    slot->frames_max = 0;
    const uint64_t room = std::max(frames, kGpuSlotFrames);
    CAIRN_ASSIGN_OR_RETURN(
        slot->told, device.Allocate(gpu::Memory::kPinned, room * GpuRing::Slot::kFrameBytes));
    slot->frames_max = room;
  }
  return Status::Ok();
}

bool GpuRing::Return(Slot* slot) {
  const bool has_work = slot->has_stream && slot->has_event;
  const bool ended = !has_work || waits_.Drain(slot->stream, slot->done);
  Release(slot, ended);
  return ended;
}

void GpuRing::Release(Slot* slot, bool usable) {
  {
    const MutexLock lock(&mutex_);
    if (usable) {
      free_.push_back(slot);
    } else {
      ++stuck_;
    }
  }
  version_.fetch_add(1, std::memory_order_release);
  waits_.scheduler().WakeAll(version_);
}

void GpuRing::Fly(Slot* slot, uint64_t frames, Ended ended) {
  slot->count = frames;
  slot->ended = std::move(ended);
  const MutexLock lock(&mutex_);
  ++slot->flight;
  flying_.push_back(slot);
}

// False: another thread saw its end.
bool GpuRing::TakeFlying(const Flight& flight) {
  const MutexLock lock(&mutex_);
  const auto at = std::find(flying_.begin(), flying_.end(), flight.slot);
  if (at == flying_.end() || flight.slot->flight != flight.number) return false;
  flying_.erase(at);
  return true;
}

void GpuRing::End(Slot* slot, const Status& status) {
  const bool usable = status.ok() || waits_.Drain(slot->stream, slot->done);
  const Ended ended = std::exchange(slot->ended, nullptr);
  ended(status, {slot->faults(), slot->count});
  Release(slot, usable);
}

bool GpuRing::Reap() {
  std::array<Flight, kGpuSlots> flying{};
  size_t count = 0;
  {
    const MutexLock lock(&mutex_);
    for (Slot* const slot : flying_) flying[count++] = {slot, slot->flight};
  }
  bool some = false;
  for (size_t i = 0; i < count; ++i) {
    const gpu::Event done = flying[i].slot->done;
    const Result<bool> reached = waits_.device().Reached(done);
    if (reached.ok() && !*reached) continue;
    const Status status = reached.ok() ? Status::Ok() : waits_.For(done, io::kNoDeadline);
    if (!TakeFlying(flying[i])) continue;
    End(flying[i].slot, status);
    some = true;
  }
  return some;
}

bool GpuRing::Await(uint64_t deadline_ns) {
  Flight first;
  {
    const MutexLock lock(&mutex_);
    if (flying_.empty()) return false;
    first = {flying_.front(), flying_.front()->flight};
  }
  const Status status = waits_.For(first.slot->done, deadline_ns);
  if (status.code() == StatusCode::kDeadlineExceeded) return Reap();
  if (TakeFlying(first)) End(first.slot, status);
  return true;
}

}  // namespace cairn::engine
