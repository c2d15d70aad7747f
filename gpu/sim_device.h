// SPDX-License-Identifier: Apache-2.0
//
// A device for tests that catches careless callers. Everything follows from a seed, also on the
// simulated machine, where Wait sleeps in virtual time.
//
//   - Enqueued work runs at once, or when somebody waits for an event behind it: then the work that
//     the event depends on runs, in a drawn order, and little else.
//   - A copy has two steps, with other work in between: its destination becomes rubbish, then the
//     source is read and written there.
//   - Reached says no a drawn number of times after the event was reached.
//   - Freed memory traps for ever. A copy that touches it when it runs loses the device.
//   - An adopted event that its owner has returned ends the process when it is used.
//   - A call fails if the options say so: the n-th of its kind, once or from there on, or the
//     device is lost there. An allocation over the device's memory fails as well.
//
// Work runs on the thread that calls; the device has none of its own.
#pragma once

#include <functional>
#include <memory>

#include "base/io/world.h"
#include "gpu/device.h"

namespace cairn::gpu {

// Kinds of calls that may fail, as bits.
enum : uint32_t {
  kFailAllocate = 1,  // Allocate, Register.
  kFailCopy = 2,      // Copy, Fill.
  kFailLaunch = 4,
  kFailEvent = 8,   // Record, StreamWait, SetWord, AwaitWord; new and adopted ones.
  kFailQuery = 16,  // Reached, Wait.
  kFailAny = 31,
};

struct SimDeviceOptions {
  uint64_t seed = 1;
  uint64_t memory_bytes = uint64_t{64} << 20;
  uint32_t fail_kinds = 0;
  uint64_t fail_at = 0;    // The number of the call among these kinds; the first is 0.
  bool fail_on = false;    // So do all later ones.
  bool fail_lost = false;  // The device is lost there.
};

class SimDevice : public Device {
 public:
  // The number of calls of `fail_kinds`: with fail_at beyond it none failed.
  virtual uint64_t calls() const = 0;
  // As SimDeviceOptions::fail_at, from now on.
  virtual void FailAt(uint64_t call) = 0;
  // The n-th launch of decode_scatter from now on that has kv64 frames finds the first of them
  // damaged, as in bad memory, and reports a fault. The next is 0.
  virtual void DamageAt(uint64_t launch) = 0;
  // Frames of the largest decode_scatter so far.
  virtual uint32_t frames_at_once() const = 0;
  // Called when a kernel runs, right before.
  virtual void OnLaunch(std::function<void(Kernel)> call) = 0;
  // Runs all enqueued work that can run, though nobody waits for it.
  virtual void RunAll() = 0;
  // Work that is enqueued in between becomes a graph, instead of running; LaunchGraph enqueues it.
  // Record and StreamWait in between are kInvalidArgument.
  virtual void BeginCapture(Stream stream) = 0;
  virtual uint64_t EndCapture(Stream stream) = 0;
  virtual Status LaunchGraph(uint64_t graph, Stream stream) = 0;
  // For AdoptStream and AdoptEvent, which stand for handles of the caller's own program. Stream 0
  // is the default one, which every program has.
  static uintptr_t HandleOf(Stream stream) { return static_cast<uintptr_t>(stream.id); }
  static uintptr_t HandleOf(Event event) { return static_cast<uintptr_t>(event.id); }
};

std::unique_ptr<SimDevice> MakeSimDevice(std::shared_ptr<io::Scheduler> scheduler,
                                         const SimDeviceOptions& options);

}  // namespace cairn::gpu
