// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "cairn/allocator.h"

namespace cairn {

namespace {

// Memory of this size belongs to the log and to windows of reads: written and read once from end to
// end, by many threads. In huge pages its first use costs 2 faults instead of 1024, direct I/O pins
// it a huge page at a time, and copying it misses the TLB less.
constexpr size_t kHugePageBytes = 2 << 20;

size_t RealAlignment(size_t bytes, size_t alignment) {
  return bytes < kHugePageBytes ? alignment : std::max(alignment, kHugePageBytes);
}

void* AllocateDefault(void*, size_t bytes, size_t alignment) {
  const auto real = std::align_val_t(RealAlignment(bytes, alignment));
  void* memory = ::operator new(bytes, real, std::nothrow);
  if (memory != nullptr && bytes >= kHugePageBytes) {
    // A hint: if it is refused the pages are small.
    static_cast<void>(madvise(memory, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE));
  }
  return memory;
}

void DeallocateDefault(void*, void* memory, size_t bytes, size_t alignment) {
  ::operator delete(memory, std::align_val_t(RealAlignment(bytes, alignment)));
}

}  // namespace

Allocator Allocator::Default() {
  return {.allocate = AllocateDefault, .deallocate = DeallocateDefault, .context = nullptr};
}

}  // namespace cairn
