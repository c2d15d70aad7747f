// SPDX-License-Identifier: Apache-2.0
//
// Several stacks on one thread, and the switch between them: it pushes and pops the registers that
// the calling convention preserves, without a system call. It reports each switch to the
// sanitizers.
#pragma once

#include <cstddef>

namespace cairn::io {

// Memory for a fiber to run on, below it a page that traps.
class FiberStack {
 public:
  FiberStack();
  ~FiberStack();
  FiberStack(FiberStack&& other) noexcept;
  FiberStack& operator=(FiberStack&&) = delete;
  void* bottom() const;
  size_t bytes() const;

 private:
  void* memory_;
};

class Fiber {
 public:
  // The context that makes this call: the thread's own stack, or that of another fiber.
  Fiber();
  // A fiber that begins with entry(argument) when it is first switched to. `entry` never returns;
  // its last act is SwitchForEver.
  Fiber(const FiberStack& stack, void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Called on this fiber; returns when another fiber switches back to it.
  void SwitchTo(Fiber& next) { Switch(next, false, true); }
  // The same, but for ThreadSanitizer it orders nothing: accesses of both fibers race unless
  // something else orders them.
  void SwitchUnordered(Fiber& next) { Switch(next, false, false); }
  // Called on this fiber, which is never run again.
  [[noreturn]] void SwitchForEver(Fiber& next);

 private:
  void Switch(Fiber& next, bool for_ever, bool ordered);
  void Arrive();
  static void Begin(void* self);

  void* stack_pointer_ = nullptr;  // While it does not run.
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // For the sanitizers. The bounds of the stack that made it are learned at the first switch.
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
  Fiber* came_from_ = nullptr;
};

}  // namespace cairn::io
