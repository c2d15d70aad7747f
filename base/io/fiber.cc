// SPDX-License-Identifier: Apache-2.0
#include "base/io/fiber.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "base/core/check.h"
#include "base/io/page_bytes.h"

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

// cairn_fiber_switch(save, load): puts what the calling convention keeps across calls on the stack,
// the modes of the floating-point unit included, as a cairn::io::SavedRegisters; leaves the stack
// pointer in *save, takes `load` for it and takes the same back from there. cairn_fiber_first is
// where a new fiber arrives: it makes SavedRegisters' call. Its frame has no caller, so unwinders
// stop there. cairn_fiber_modes(into) stores the modes of this thread.
extern "C" {
void cairn_fiber_switch(void** save, void* load);
void cairn_fiber_first();
void cairn_fiber_modes(void* into);
}

namespace cairn::io {
namespace {

#if defined(__x86_64__)

struct SavedRegisters {
  uint64_t modes = 0;  // Control words: the vector unit's, then the x87's.
  void* r15 = nullptr;
  void* r14 = nullptr;
  void (*calls)(void*) = nullptr;  // r13
  void* with = nullptr;            // r12
  void* rbx = nullptr;
  void* rbp = nullptr;
  void (*arrives_at)() = nullptr;
};
static_assert(sizeof(SavedRegisters) == 64);

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

#elif defined(__aarch64__)

// x19 to x30 are kept across calls (x29 is the frame pointer, x30 the return address), of the
// vector registers only the low halves d8 to d15. The platform owns x18: nobody touches it.
struct SavedRegisters {
  void* with = nullptr;            // x19
  void (*calls)(void*) = nullptr;  // x20
  void* x21_to_x29[9] = {};        // x29 is 0: no frame is above.
  void (*arrives_at)() = nullptr;  // x30
  uint64_t d8_to_d15[8] = {};
  uint64_t modes = 0;  // The FPCR.
  uint64_t unused = 0;
};
static_assert(sizeof(SavedRegisters) == 176 && offsetof(SavedRegisters, arrives_at) == 88 &&
              offsetof(SavedRegisters, modes) == 160);

asm(R"(
.pushsection .text
.p2align 4
.hidden cairn_fiber_switch
.globl cairn_fiber_switch
.type cairn_fiber_switch,%function
cairn_fiber_switch:
  mrs x9, fpcr
  stp x19, x20, [sp, #-176]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  str x9, [sp, #160]
  mov x10, sp
  str x10, [x0]
  mov sp, x1
  ldr x9, [sp, #160]
  msr fpcr, x9
  ldp d14, d15, [sp, #144]
  ldp d12, d13, [sp, #128]
  ldp d10, d11, [sp, #112]
  ldp d8, d9, [sp, #96]
  ldp x29, x30, [sp, #80]
  ldp x27, x28, [sp, #64]
  ldp x25, x26, [sp, #48]
  ldp x23, x24, [sp, #32]
  ldp x21, x22, [sp, #16]
  ldp x19, x20, [sp], #176
  ret
.size cairn_fiber_switch,.-cairn_fiber_switch

.hidden cairn_fiber_first
.globl cairn_fiber_first
.type cairn_fiber_first,%function
cairn_fiber_first:
  .cfi_startproc
  .cfi_undefined x30
  mov x0, x19
  blr x20
  brk #1
  .cfi_endproc
.size cairn_fiber_first,.-cairn_fiber_first

.hidden cairn_fiber_modes
.globl cairn_fiber_modes
.type cairn_fiber_modes,%function
cairn_fiber_modes:
  mrs x9, fpcr
  str x9, [x0]
  ret
.size cairn_fiber_modes,.-cairn_fiber_modes
.popsection
)");

#else
#error "base/io/fiber.cc: the switch of stacks is written for x86-64 and for aarch64"
#endif

// The stack pointer is a multiple of this where a call is made.
constexpr size_t kStackAlignment = 16;
static_assert(sizeof(SavedRegisters) % kStackAlignment == 0);

#if CAIRN_FIBER_ASAN || CAIRN_FIBER_TSAN
constexpr size_t kStackBytes = 1 << 20;  // Instrumented frames are larger.
#else
constexpr size_t kStackBytes = 256 << 10;
#endif

// The tops of many stacks must not share a few sets of the cache, as they do a multiple of pages
// apart.
constexpr size_t kColours = 16;
constexpr size_t kColourBytes = 832;  // 13 lines of the cache.
static_assert(kColourBytes % kStackAlignment == 0);

}  // namespace

FiberStack::FiberStack()
    : memory_(mmap(nullptr, PageBytes() + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {
  CAIRN_CHECK(memory_ != MAP_FAILED);
  CAIRN_CHECK(mprotect(memory_, PageBytes(), PROT_NONE) == 0);
}

FiberStack::FiberStack(FiberStack&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)) {}

FiberStack::~FiberStack() {
  if (memory_ == nullptr) return;
#if CAIRN_FIBER_ASAN
  __asan_unpoison_memory_region(bottom(), kStackBytes);  // Frames may never have returned.
#endif
  munmap(memory_, PageBytes() + kStackBytes);
}

void* FiberStack::bottom() const { return static_cast<char*>(memory_) + PageBytes(); }

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
  const size_t colour = reinterpret_cast<uintptr_t>(stack.bottom()) / PageBytes() % kColours;
  char* const end = static_cast<char*>(stack.bottom()) + stack.bytes();
  stack_pointer_ = end - kColourBytes * colour - sizeof(SavedRegisters);
  auto* const saved = new (stack_pointer_) SavedRegisters;
  saved->calls = &Fiber::Begin;
  saved->with = this;
  saved->arrives_at = &cairn_fiber_first;
  cairn_fiber_modes(&saved->modes);
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
