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
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if CAIRN_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
// Between two fibers the switch's own words are no race.
#define CAIRN_FIBER_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define CAIRN_FIBER_NO_TSAN
#endif

#if !defined(__x86_64__)
#error "base/io/fiber.cc: the switch of stacks is written for x86-64"
#endif

// cairn_fiber_switch(save, load): pushes what the calling convention keeps across calls (six
// registers; the modes of the vector and of the x87 unit in eight bytes), leaves the stack pointer
// in *save, takes `load` for it and pops the same. cairn_fiber_first is where a new fiber arrives:
// it calls r13(r12). Its frame has no caller, which tells unwinders to stop.
extern "C" {
void cairn_fiber_switch(void** save, void* load);
void cairn_fiber_first();
void cairn_fiber_modes(void* into);
}
asm(R"(
.pushsection .text
.p2align 4
.hidden cairn_fiber_switch
.globl cairn_fiber_switch
.type cairn_fiber_switch,@function
cairn_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cairn_fiber_switch,.-cairn_fiber_switch

.hidden cairn_fiber_first
.globl cairn_fiber_first
.type cairn_fiber_first,@function
cairn_fiber_first:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size cairn_fiber_first,.-cairn_fiber_first

.hidden cairn_fiber_modes
.globl cairn_fiber_modes
.type cairn_fiber_modes,@function
cairn_fiber_modes:
  stmxcsr (%rdi)
  fnstcw 4(%rdi)
  ret
.size cairn_fiber_modes,.-cairn_fiber_modes
.popsection
)");

namespace cairn::io {
namespace {

constexpr size_t kGuardBytes = 4096;
#if CAIRN_FIBER_ASAN || CAIRN_FIBER_TSAN
constexpr size_t kStackBytes = 1 << 20;  // Instrumented frames are larger.
#else
constexpr size_t kStackBytes = 256 << 10;
#endif

// The tops of many stacks must not share a few sets of the cache, as they do a multiple of pages
// apart.
constexpr size_t kColours = 16;
constexpr size_t kColourBytes = 832;  // 13 lines of the cache.
static_assert(kColourBytes % 16 == 0);

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
  if (memory_ == nullptr) return;
#if CAIRN_FIBER_ASAN
  __asan_unpoison_memory_region(bottom(), kStackBytes);  // Of frames that never returned.
#endif
  munmap(memory_, kGuardBytes + kStackBytes);
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
  // The registers that cairn_fiber_switch pops. The stack is aligned to 16 where the first call is.
  const size_t colour = reinterpret_cast<uintptr_t>(stack.bottom()) / kGuardBytes % kColours;
  char* const end = static_cast<char*>(stack.bottom()) + stack.bytes();
  auto* top = reinterpret_cast<void**>(end - kColourBytes * colour);
  *--top = reinterpret_cast<void*>(&cairn_fiber_first);
  *--top = nullptr;                                 // rbp
  *--top = nullptr;                                 // rbx
  *--top = this;                                    // r12
  *--top = reinterpret_cast<void*>(&Fiber::Begin);  // r13
  *--top = nullptr;                                 // r14
  *--top = nullptr;                                 // r15
  --top;
  cairn_fiber_modes(top);
  stack_pointer_ = top;
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
  Switch(next, true, true);
  __builtin_unreachable();
}

CAIRN_FIBER_NO_TSAN void Fiber::Switch(Fiber& next, bool for_ever, bool ordered) {
  next.came_from_ = this;
#if CAIRN_FIBER_ASAN
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, next.stack_bottom_,
                                 next.stack_bytes_);
#endif
#if CAIRN_FIBER_TSAN
  __tsan_switch_to_fiber(next.tsan_fiber_, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
  (void)for_ever;
  (void)ordered;
  cairn_fiber_switch(&stack_pointer_, next.stack_pointer_);
  Arrive();
}

CAIRN_FIBER_NO_TSAN void Fiber::Arrive() {
#if CAIRN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &came_from_->stack_bottom_,
                                  &came_from_->stack_bytes_);
#endif
}

CAIRN_FIBER_NO_TSAN void Fiber::Begin(void* self) {
  auto* fiber = static_cast<Fiber*>(self);
  fiber->Arrive();
  fiber->entry_(fiber->argument_);
  CAIRN_CHECK(!"a fiber's entry returned");
}

}  // namespace cairn::io
