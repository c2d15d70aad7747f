// SPDX-License-Identifier: Apache-2.0
#include "tests/memory/failing_new.h"

#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

namespace cairn::memory {

namespace {

FailPlan plan;
std::atomic<uint64_t> counted = 0;
std::atomic<uint64_t> failed = 0;
std::atomic<bool> failing = false;
void* first_failure[40];
int first_failure_depth = 0;

thread_local bool sets_plans = false;
thread_local uint64_t call_in = 0;
thread_local std::function<void()> to_call;

void* Allocate(size_t bytes, size_t alignment) noexcept {
  if (call_in != 0 && --call_in == 0) to_call();
  if (failing && (!plan.of_this_thread || sets_plans)) {
    const uint64_t number = ++counted;
    if (number == plan.at || (plan.persistent && number > plan.at)) {
      if (failed++ == 0) {
        first_failure_depth = backtrace(first_failure, std::size(first_failure));
      }
      return nullptr;
    }
  }
  bytes = std::max<size_t>(bytes, 1);
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void SetFailPlan(const FailPlan& to) {
  sets_plans = true;
  plan = to;
  counted = 0;
  failed = 0;
}
void EndFailPlan() { plan = FailPlan(); }
uint64_t AllocationsCounted() { return counted; }
uint64_t AllocationsFailed() { return failed; }
void PrintFirstFailure() {
  static constexpr char kTitle[] = "the allocation that failed first:\n";
  if (write(STDERR_FILENO, kTitle, sizeof(kTitle) - 1) < 0) return;
  backtrace_symbols_fd(first_failure, first_failure_depth, STDERR_FILENO);
}
void PrintStack() {
  void* stack[40];
  write(STDERR_FILENO, "now:\n", 5) < 0
      ? void()
      : backtrace_symbols_fd(stack, backtrace(stack, std::size(stack)), STDERR_FILENO);
}
uint64_t CallAtAllocation(uint64_t n, std::function<void()> act) {
  const uint64_t left = std::exchange(call_in, 0);
  to_call = std::move(act);
  call_in = n;
  return left;
}
Allocator NewAllocator() {
  return {.allocate = [](void*, size_t bytes, size_t alignment) -> void* {
            return Allocate(bytes, alignment);
          },
          .deallocate = [](void*, void* memory, size_t, size_t) { std::free(memory); },
          .context = nullptr};
}

bool SetFailing(bool on) { return failing.exchange(on); }

}  // namespace cairn::memory

using cairn::memory::Allocate;
using cairn::memory::AllocateOrThrow;

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new[](size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<size_t>(alignment));
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
