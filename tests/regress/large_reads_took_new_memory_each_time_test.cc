// SPDX-License-Identifier: Apache-2.0
//
// After a restore of small records, every window of larger ones was read into memory that was
// allocated for it, given back, and so touched for the first time again.
#include "tests/base/counting_allocator.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(Regress, LargeReadsTookNewMemoryEachTime) {
  const ModelSpec model = WideModel();
  CountingAllocator memory;
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.segment_bytes = 8 << 20;
  options.hot_tail_bytes = 1 << 20;
  options.max_memory_bytes = 1 << 30;
  options.allocator = memory.allocator();
  {
    ASSERT_OK_ASSIGN(Store store, world->Open(options));
    ASSERT_OK(store.PauseBackground());
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch small, store.CreateBranch(id));
    ASSERT_OK_ASSIGN(Branch large, store.CreateBranch(id));
    constexpr uint64_t kSmall = 64, kLarge = 320;  // 0.5 and 2.5 MiB, so a window is one record.
    for (uint64_t at = 0; at < 24 * kSmall; at += kSmall) {
      ASSERT_OK(AppendSome(small, model, at, kSmall));
    }
    for (uint64_t at = 0; at < 6 * kLarge; at += kLarge) {
      ASSERT_OK(AppendSome(large, model, at, kLarge));
    }
    ASSERT_OK(store.Flush());
    EXPECT_TRUE(HasKv(small, model, 0, 24 * kSmall));
    // The page cache takes it the second time.
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(HasKv(large, model, 0, 6 * kLarge));
    const uint64_t before = memory.taken();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(HasKv(large, model, 0, 6 * kLarge));
    EXPECT_LE(memory.taken(), before + 2);
  }
}

}  // namespace
}  // namespace cairn::testing
