// SPDX-License-Identifier: Apache-2.0
//
// Where Cairn's large buffers come from. The host chooses; the library never replaces malloc.
#pragma once

#include <cstddef>

namespace [[gnu::visibility("default")]] cairn {

// Three plain members so that any allocator fits. Both functions are called from many threads at
// once. `allocate` returns null on failure (the call that needed it gives kOutOfMemory or kBusy).
// What they need lives until the last handle of the store is gone, drafts included: a store that is
// closed still holds some.
struct Allocator {
  void* (*allocate)(void* context, size_t bytes, size_t alignment) = nullptr;
  void (*deallocate)(void* context, void* memory, size_t bytes, size_t alignment) = nullptr;
  void* context = nullptr;

  // Aligned operator new of the host; asks for huge pages from 2 MiB on (MADV_HUGEPAGE).
  static Allocator Default();
};

}  // namespace cairn
