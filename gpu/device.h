// SPDX-License-Identifier: Apache-2.0
//
// A device with memory of its own that works through streams. Two implementations: CudaDevice
// (gpu/cuda/cuda_device.h), and SimDevice (gpu/sim_device.h), which runs the same kernels on the
// CPU, and its streams as late and in as unlikely an order as allowed.
//
// Rules for all code above:
//   - There are no callbacks. Callers ask whether work has ended (Reached) or wait for it (Wait).
//   - Memory that a stream reads or writes belongs to it until an event recorded behind is reached.
//     That includes the source of a copy: it is read when the copy runs.
//   - StreamWait for an event that was never recorded waits for nothing, and a later Record does
//     not change that. To wait for work that is yet to be enqueued, wait for a word (AwaitWord).
//   - A call that fails has enqueued nothing. Once the device is lost, every call fails with the
//     first cause, and nothing touches any memory any more.
// Safe from any thread; a stream keeps the order of the calls of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "cairn/status.h"
#include "gpu/kernels.h"
#include "gpu/lane.h"

namespace cairn::gpu {

enum class Memory : uint8_t {
  kDevice,
  kPinned,  // Host memory: streams copy from and to it, and kernels read it, at the bus's rate.
};
enum class Priority : uint8_t { kLow, kHigh };

struct Stream {
  uint64_t id = 0;
};
struct Event {
  uint64_t id = 0;
};

struct DeviceInfo {
  std::string name;
  uint32_t processors = 0;
  uint64_t memory_bytes = 0;
  bool copies_in_batches = false;  // Many pieces for the price of one call.
  bool waits_for_words = false;    // Else SetWord and AwaitWord give kInvalidArgument.
};

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

inline constexpr uint64_t kDeviceAlignment = 256;
inline constexpr size_t kArgumentBytesMax = 1024;

class Device {
 public:
  virtual ~Device() = default;  // All enqueued work has ended.
  virtual const DeviceInfo& info() const = 0;

  // --- Memory, aligned to kDeviceAlignment, of undefined content. kOutOfMemory.
  virtual Result<std::byte*> Allocate(Memory memory, uint64_t bytes) = 0;
  virtual void Free(std::byte* at) = 0;  // Nothing in flight may touch it.
  // Pins the caller's memory. kOutOfMemory when the operating system refuses.
  virtual Status Register(std::span<std::byte> host) = 0;
  virtual void Unregister(std::span<std::byte> host) = 0;

  // --- Streams and events; Adopt takes the caller's own (a cudaStream_t, a cudaEvent_t).
  virtual Result<Stream> NewStream(Priority priority) = 0;
  virtual Result<Stream> AdoptStream(uintptr_t handle) = 0;
  virtual Result<Event> NewEvent() = 0;
  virtual Result<Event> AdoptEvent(uintptr_t handle) = 0;
  virtual void Return(Stream stream) = 0;  // Work in it still runs.
  // True: enqueued work becomes part of a graph of the caller, and runs when that is launched. Not
  // so Record and StreamWait, which fail.
  virtual Result<bool> IsCaptured(Stream stream) = 0;
  virtual void Return(Event event) = 0;

  // --- Enqueue; never blocks. kInvalidArgument for a stream or an event that was returned or is of
  // another device, and for memory that is neither the device's nor pinned.
  virtual Status Copy(Stream stream, std::span<const CopyPiece> pieces) = 0;
  virtual Status Fill(Stream stream, std::span<std::byte> at, std::byte with) = 0;
  virtual Status Launch(Stream stream, Kernel kernel, const LaunchShape& shape,
                        std::span<const std::byte> arguments) = 0;
  virtual Status Record(Stream stream, Event event) = 0;
  virtual Status StreamWait(Stream stream, Event event) = 0;
  // Words lie in pinned or device memory. AwaitWord holds the stream until the word is at least
  // `value`. A caller that enqueued AwaitWord must make sure that the word is set, whatever
  // happens.
  virtual Status SetWord(Stream stream, uint32_t* word, uint32_t value) = 0;
  virtual Status AwaitWord(Stream stream, const uint32_t* word, uint32_t at_least) = 0;

  // --- Ends. An event that was never recorded has been reached.
  virtual Result<bool> Reached(Event event) = 0;               // Never blocks.
  virtual Status Wait(Event event, uint64_t deadline_ns) = 0;  // kDeadlineExceeded.
  virtual Status lost() const = 0;                             // Ok, or why.

  // K is the struct of a kernel's arguments, which names it.
  template <typename K>
  Status Launch(Stream stream, const K& arguments) {
    static_assert(std::is_trivially_copyable_v<K> && sizeof(K) <= kArgumentBytesMax);
    return Launch(stream, KernelOf<K>::kNumber, ShapeOf(arguments),
                  std::as_bytes(std::span(&arguments, 1)));
  }
};

}  // namespace cairn::gpu
