// SPDX-License-Identifier: Apache-2.0
//
// What all restores into one GPU share: slots, each with device memory that packed pages are copied
// to, pinned memory for what the kernel is told about them and what it tells back, and a stream.
//
//   free      Take gives it to a thread
//   taken     which enqueues copy, launch and event, and waits for nothing in between
//   flying    until a thread sees the event reached, ends it, and it is free again
//
// So a slot that is not to be had now will be, whatever restores wait for each other; and what
// flies waits for nothing but the device's own work, so it ends soon.
//
// Thread-safe. Take and Await may wait for the device; no lock may be held around them. Errors are
// those of the device; when it is lost, all that flies has ended, with that error, and so has every
// later call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/core/mutex.h"
#include "engine/constants.h"
#include "engine/gpu/gpu_waits.h"

namespace cairn::engine {

class GpuRing {
 public:
  // Of a slot that flew, and touches nothing any more: how it went, and what the kernel said of
  // each frame. On the thread that saw it. Must not throw, nor call the ring.
  using Ended = std::function<void(const Status& status, std::span<const gpu::Fault> faults)>;

  struct Slot {
    gpu::Stream stream;
    gpu::Event done;
    std::byte* packed = nullptr;  // Device memory of packed_bytes.
    uint64_t packed_bytes = 0;
    // Pinned: the kernel reads frames and writes faults there.
    std::byte* told = nullptr;
    uint64_t frames_max = 0;
    gpu::FrameToScatter* frames() const { return reinterpret_cast<gpu::FrameToScatter*>(told); }
    gpu::Fault* faults() const {
      return reinterpret_cast<gpu::Fault*>(told + frames_max * sizeof(gpu::FrameToScatter));
    }
    uint64_t count = 0;   // Frames of this flight,
    uint64_t flight = 0;  // which this numbers.
    Ended ended{};
    bool has_stream = false, has_event = false;
  };

  explicit GpuRing(const GpuWaits* waits);
  ~GpuRing();  // Nothing flies.
  GpuRing(const GpuRing&) = delete;
  GpuRing& operator=(const GpuRing&) = delete;

  // With room for so many packed bytes and frames. Waits until one has ended where none is free.
  Result<Slot*> Take(uint64_t packed_bytes, uint64_t frames);
  // Gives back one that is not to fly; what was enqueued of it ends before. False: that could not
  // be found out, so what it was told of may still be touched.
  bool Return(Slot* slot);
  // Everything of the slot is enqueued, and its event recorded behind. `ended` is called once.
  void Fly(Slot* slot, uint64_t frames, Ended ended);

  // Ends what was reached. True: some.
  bool Reap();
  // Waits for what has flown longest, until `deadline_ns`, and ends it. False: nothing flies, or
  // nothing was reached in time.
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
  std::vector<Slot*> flying_ CAIRN_GUARDED_BY(mutex_);  // The one that began first is the first.
  std::atomic<uint32_t> version_{0};                    // Changes when a slot gets free.
};

}  // namespace cairn::engine
