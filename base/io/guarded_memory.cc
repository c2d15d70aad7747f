// SPDX-License-Identifier: Apache-2.0
#include "base/io/guarded_memory.h"

#include <sys/mman.h>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/io/page_bytes.h"

namespace cairn::io {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

GuardedMemory::GuardedMemory(size_t bytes)
    : mapped_bytes_(AlignUp(bytes, PageBytes()) + PageBytes()),
      memory_(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0)) {
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    return;
  }
  std::byte* const end = static_cast<std::byte*>(memory_) + mapped_bytes_ - PageBytes();
  CAIRN_CHECK(mprotect(end, PageBytes(), PROT_NONE) == 0);
  data_ = end - AlignUp(bytes, kAlignment);
}

GuardedMemory::~GuardedMemory() {
  if (memory_ != nullptr) munmap(memory_, mapped_bytes_);
}

void GuardedMemory::Trap() {
  // A mapping that was never written merges with similar neighbours: a process may have no more
  // than 65,530 mappings.
  CAIRN_CHECK(mmap(memory_, mapped_bytes_, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == memory_);
}

}  // namespace cairn::io
