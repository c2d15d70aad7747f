// SPDX-License-Identifier: Apache-2.0
#include "base/io/fork_memory.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/io/page_bytes.h"

namespace cairn::io {

namespace {

void Advise(std::span<std::byte> memory, int advice) {
  const uintptr_t page = PageBytes();
  const auto begin = (reinterpret_cast<uintptr_t>(memory.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(memory.data() + memory.size()) / page * page;
  if (begin < end) static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, advice));
}

}  // namespace

void KeepFromChildren(std::span<std::byte> memory) { Advise(memory, MADV_DONTFORK); }
void GiveToChildren(std::span<std::byte> memory) { Advise(memory, MADV_DOFORK); }

}  // namespace cairn::io
