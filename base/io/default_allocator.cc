// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/io/page_bytes.h"
#include "cairn/allocator.h"

namespace cairn {

namespace {

// Memory of this size belongs to the log and to windows of reads: written and read once from end to
// end, by many threads. In huge pages its first use costs 2 faults instead of 1024, direct I/O pins
// it a huge page at a time, and copying it misses the TLB less.
constexpr size_t kHugePageBytes = 2 << 20;

// From here on memory is mapped. glibc's malloc begins here as well, but with each mapping that is
// freed it raises its threshold, up to 32 MiB; then large buffers lie in its arenas, one for each
// thread or so, which give back only their ends.
constexpr size_t kMappedBytesMin = 128 << 10;

// A sanitizer sees no overflow of memory that it did not allocate itself.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMaps = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kMaps = false;
#else
constexpr bool kMaps = true;
#endif
#else
constexpr bool kMaps = true;
#endif

size_t RealAlignment(size_t bytes, size_t alignment) {
  return bytes < kHugePageBytes ? alignment : std::max(alignment, kHugePageBytes);
}

bool IsMapped(size_t bytes) { return kMaps && bytes >= kMappedBytesMin; }

void Unmap(void* memory, size_t bytes) {
  if (bytes == 0 || munmap(memory, bytes) == 0) return;
  // The process has too many mappings to split one. The addresses are lost; the pages go back.
  static_cast<void>(madvise(memory, bytes, MADV_DONTNEED));
}

void* Map(size_t bytes, size_t alignment) {
  const size_t page = io::PageBytes();
  if (bytes > SIZE_MAX / 2 || alignment > SIZE_MAX / 4) return nullptr;
  const size_t whole = AlignUp(bytes, page);
  const size_t spare = alignment > page ? alignment - page : 0;
  void* const mapped =
      mmap(nullptr, whole + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(mapped);
  const size_t before = AlignUp(reinterpret_cast<uintptr_t>(begin), std::max(alignment, page)) -
                        reinterpret_cast<uintptr_t>(begin);
  Unmap(begin, before);
  Unmap(begin + before + whole, spare - before);
  return begin + before;
}

void* AllocateDefault(void*, size_t bytes, size_t alignment) {
  const size_t real = RealAlignment(bytes, alignment);
  void* const memory = IsMapped(bytes)
                           ? Map(bytes, real)
                           : ::operator new(bytes, std::align_val_t(real), std::nothrow);
  if (memory != nullptr && bytes >= kHugePageBytes) {
    // A hint: if it is refused the pages are small.
    static_cast<void>(madvise(memory, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE));
  }
  return memory;
}

void DeallocateDefault(void*, void* memory, size_t bytes, size_t alignment) {
  if (memory == nullptr) return;
  if (IsMapped(bytes)) {
    Unmap(memory, AlignUp(bytes, io::PageBytes()));
  } else {
    ::operator delete(memory, std::align_val_t(RealAlignment(bytes, alignment)));
  }
}

}  // namespace

Allocator Allocator::Default() {
  return {.allocate = AllocateDefault, .deallocate = DeallocateDefault, .context = nullptr};
}

}  // namespace cairn
