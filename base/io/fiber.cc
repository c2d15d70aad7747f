// SPDX-License-Identifier: Apache-2.0
#include "base/io/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/core/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define CAIRN_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAIRN_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define CAIRN_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CAIRN_FIBER_TSAN 1
#endif
#endif

#if CAIRN_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if CAIRN_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cairn::io {
namespace {

constexpr size_t kGuardBytes = 4096;
#if CAIRN_FIBER_ASAN || CAIRN_FIBER_TSAN
constexpr size_t kStackBytes = 1 << 20;  // Instrumented frames are larger.
#else
constexpr size_t kStackBytes = 256 << 10;
#endif

}  // namespace

FiberStack::FiberStack()
    : memory_(mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {
  CAIRN_CHECK(memory_ != MAP_FAILED);
  CAIRN_CHECK(mprotect(memory_, kGuardBytes, PROT_NONE) == 0);
}

FiberStack::FiberStack(FiberStack&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)) {}

FiberStack::~FiberStack() {
  if (memory_ != nullptr) munmap(memory_, kGuardBytes + kStackBytes);
}

void* FiberStack::bottom() const { return static_cast<char*>(memory_) + kGuardBytes; }

size_t FiberStack::bytes() const { return kStackBytes; }

Fiber::Fiber() {
#if CAIRN_FIBER_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(const FiberStack& stack, void (*entry)(void*), void* argument)
    : entry_(entry),
      argument_(argument),
      stack_bottom_(stack.bottom()),
      stack_bytes_(stack.bytes()) {
  CAIRN_CHECK(getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack.bottom();
  context_.uc_stack.ss_size = stack.bytes();
  context_.uc_link = nullptr;
  // makecontext passes ints only: a pointer goes as two halves.
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::Begin), 2,
              static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
#if CAIRN_FIBER_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if CAIRN_FIBER_TSAN
  if (entry_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
}

void Fiber::SwitchForEver(Fiber& next) {
  Switch(next, true);
  __builtin_unreachable();
}

void Fiber::Switch(Fiber& next, bool for_ever) {
  next.came_from_ = this;
#if CAIRN_FIBER_ASAN
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, next.stack_bottom_,
                                 next.stack_bytes_);
#endif
#if CAIRN_FIBER_TSAN
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  (void)for_ever;
  CAIRN_CHECK(swapcontext(&context_, &next.context_) == 0);
#if CAIRN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &came_from_->stack_bottom_,
                                  &came_from_->stack_bytes_);
#endif
}

void Fiber::Begin(unsigned low, unsigned high) {
  auto* self =
      reinterpret_cast<Fiber*>(static_cast<uintptr_t>(low) | (static_cast<uintptr_t>(high) << 32));
#if CAIRN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->came_from_->stack_bottom_,
                                  &self->came_from_->stack_bytes_);
#endif
  self->entry_(self->argument_);
  CAIRN_CHECK(!"a fiber's entry returned");
}

}  // namespace cairn::io
