// SPDX-License-Identifier: Apache-2.0
//
// Shared by all restores into one GPU: slots, each with device memory that packed pages are copied
// to, pinned memory for the kernel's input and its faults, and a stream.
//
//   free      Take gives it to a thread
//   taken     that thread enqueues copy, launch and event, and waits for nothing in between
//   flying    until a thread sees the event reached, ends it, and it is free again
//
// So a slot becomes free sooner or later, whatever restores wait for each other: a flying slot
// waits only for the device's own work, so it ends soon.
//
// Thread-safe. Take and Await may wait for the device; no lock may be held around them. Errors are
// those of the device. When it is lost, all flying slots have ended with that error, and so does
// every later call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/core/mutex.h"
#include "engine/config/constants.h"
#include "engine/device/gpu_waits.h"

namespace cairn::engine {

class GpuRing {
 public:
  // Called when a slot has flown and touches nothing any more: its status, and the kernel's faults
  // by frame. On the thread that saw the end. Must not throw, nor call the ring.
  using Ended = std::function<void(const Status& status, std::span<const gpu::Fault> faults)>;

  struct Slot {
    gpu::Stream stream;
    gpu::Event done;
    std::byte* packed = nullptr;  // Device memory of packed_bytes.
    uint64_t packed_bytes = 0;
    // Pinned: the kernels read frames and rows to turn there, and write faults.
    std::byte* told = nullptr;
    uint64_t frames_max = 0;
    gpu::FrameToScatter* frames() const { return reinterpret_cast<gpu::FrameToScatter*>(told); }
    gpu::RowsToTurn* turned() const {
      return reinterpret_cast<gpu::RowsToTurn*>(told + frames_max * sizeof(gpu::FrameToScatter));
    }
    gpu::Fault* faults() const { return reinterpret_cast<gpu::Fault*>(turned() + frames_max); }
    static constexpr uint64_t kFrameBytes =
        sizeof(gpu::FrameToScatter) + sizeof(gpu::RowsToTurn) + sizeof(gpu::Fault);
    uint64_t count = 0;   // Frames of this flight,
    uint64_t flight = 0;  // number of this flight.
    Ended ended{};
    bool has_stream = false, has_event = false;
  };

  explicit GpuRing(const GpuWaits* waits);
  ~GpuRing();  // Nothing flies.
  GpuRing(const GpuRing&) = delete;
  GpuRing& operator=(const GpuRing&) = delete;

  // A slot with room for this many packed bytes and frames. If none is free, waits until one has
  // ended.
  Result<Slot*> Take(uint64_t packed_bytes, uint64_t frames);
  // Gives back a slot that will not fly; its enqueued work ends first. False: it is unknown whether
  // that ended, so the memory given to it may still be touched.
  bool Return(Slot* slot);
  // Call after everything of the slot is enqueued and its event recorded. `ended` is called once.
  void Fly(Slot* slot, uint64_t frames, Ended ended);

  // Ends slots whose event was reached. True: there were some.
  bool Reap();
  // Waits until `deadline_ns` for the slot that has flown longest, and ends it. False: nothing
  // flies, or no event was reached in time.
  bool Await(uint64_t deadline_ns);

 private:
  struct Flight {
    Slot* slot = nullptr;
    uint64_t number = 0;
  };
  void Release(Slot* slot, bool usable);
  Status Prepare(Slot* slot, uint64_t packed_bytes, uint64_t frames);
  void End(Slot* slot, const Status& status);
  bool TakeFlying(const Flight& flight);

  const GpuWaits& waits_;
  std::array<Slot, kGpuSlots> slots_;
  Mutex mutex_;
  std::vector<Slot*> free_ CAIRN_GUARDED_BY(mutex_);
  size_t stuck_ CAIRN_GUARDED_BY(mutex_) = 0;           // Slots that are never used again.
  std::vector<Slot*> flying_ CAIRN_GUARDED_BY(mutex_);  // Oldest flight first.
  std::atomic<uint32_t> version_{0};                    // Changes when a slot gets free.
};

}  // namespace cairn::engine
