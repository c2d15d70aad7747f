// SPDX-License-Identifier: Apache-2.0
//
// Property: guarded memory can be used to its end, traps behind it, and traps as a whole after
// Trap(), whatever the size of pages is.
#include "base/io/guarded_memory.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/io/page_bytes.h"

namespace cairn::io {
namespace {

TEST(GuardedMemoryDeathTest, TrapsBehindItsEnd) {
  for (const size_t bytes : {size_t{256}, size_t{4096}, PageBytes(), 3 * PageBytes() + 256}) {
    const GuardedMemory memory(bytes);
    ASSERT_TRUE(memory.ok());
    volatile std::byte* const data = memory.data();
    data[0] = std::byte{1};
    data[bytes - 1] = std::byte{1};
    EXPECT_DEATH(data[bytes] = std::byte{1}, "") << bytes;
  }
}

TEST(GuardedMemoryDeathTest, TrapsAsAWhole) {
  GuardedMemory memory(PageBytes() + 256);
  ASSERT_TRUE(memory.ok());
  volatile std::byte* const data = memory.data();
  data[0] = std::byte{1};
  memory.Trap();
  EXPECT_DEATH(static_cast<void>(data[0]), "");
  EXPECT_DEATH(data[PageBytes()] = std::byte{1}, "");
}

TEST(GuardedMemory, BeginsAligned) {
  const GuardedMemory memory(1);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory.data()) % 256);
}

}  // namespace
}  // namespace cairn::io
