// SPDX-License-Identifier: Apache-2.0
//
// Property: memory that is kept from children is not theirs, and is again when it is given to them.
#include "base/io/fork_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <vector>

#include "base/io/page_bytes.h"
#include "tests/support/child.h"

namespace cairn::io {
namespace {

// Whether this process has the page of that address.
bool HasPage(const std::byte* at) {
  const auto page = reinterpret_cast<uintptr_t>(at) / PageBytes() * PageBytes();
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page), 1, &resident) == 0 || errno != ENOMEM;
}

std::byte* Map(size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

// An emulator may accept the advice and ignore it.
bool IsAdviceFollowed() {
  std::byte* const page = Map(PageBytes());
  const bool followed = madvise(page, PageBytes(), MADV_DONTFORK) == 0 && testing::InChild([&] {
                          return testing::Expect(!HasPage(page), "MADV_DONTFORK is ignored");
                        });
  munmap(page, PageBytes());
  return followed;
}

TEST(ForkMemory, ChildrenDoNotGetIt) {
  if (!IsAdviceFollowed()) GTEST_SKIP() << "this machine ignores MADV_DONTFORK";
  const size_t bytes = 16 * PageBytes();
  std::byte* const at = Map(bytes);
  ASSERT_NE(nullptr, at);
  // Whole pages alone: what shares its page with others stays.
  const std::span<std::byte> memory(at + 100, bytes - 200);
  KeepFromChildren(memory);
  EXPECT_TRUE(testing::InChild([&] {
    return testing::Expect(HasPage(at), "the first page") &&
           testing::Expect(!HasPage(at + bytes / 2), "a page in between") &&
           testing::Expect(HasPage(at + bytes - 1), "the last page");
  }));
  EXPECT_TRUE(HasPage(at + bytes / 2));
  GiveToChildren(memory);
  EXPECT_TRUE(testing::InChild(
      [&] { return testing::Expect(HasPage(at + bytes / 2), "a page in between"); }));
  KeepFromChildren({});
  munmap(at, bytes);
}

}  // namespace
}  // namespace cairn::io
