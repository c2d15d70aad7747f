// SPDX-License-Identifier: Apache-2.0
//
// Where Cairn's large buffers come from: the hot tail of the log, staging memory, read windows, the
// page cache. The host program chooses; the library never replaces malloc, and small objects
// (nodes, handles, messages) come from operator new.
#pragma once

#include <cstddef>

namespace [[gnu::visibility("default")]] cairn {

// Three plain members so that any allocator fits.
//
// Both functions are called from many threads at once, the caller's and the store's. They must not
// call back into the store, block, or throw. `allocate` returns memory aligned to `alignment`, a
// power of two, or null on failure; the call that needed it then gives kOutOfMemory or kBusy.
// `deallocate` gets the size and the alignment that the memory was asked for with.
//
// `context`, and whatever else the functions need, must live until the last handle of the store is
// gone, drafts included: a store that is closed still holds some memory.
struct Allocator {
  void* (*allocate)(void* context, size_t bytes, size_t alignment) = nullptr;
  void (*deallocate)(void* context, void* memory, size_t bytes, size_t alignment) = nullptr;
  void* context = nullptr;

  // Aligned operator new; from 128 KiB on mapped memory, which freed goes back to the system, while
  // a malloc keeps it (docs/limits.md). Huge pages from 2 MiB on (MADV_HUGEPAGE), if there are any.
  static Allocator Default();
};

}  // namespace cairn
