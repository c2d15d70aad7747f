// SPDX-License-Identifier: Apache-2.0
//
// The bug: tables of the index that somebody read when they were merged were deleted only after the
// next merge that took something away. A Compact that found nothing to merge left their files.
// Method: changes and Compacts within a Verify, by an allocator that calls them.
#include <algorithm>

#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(IndexTablesReadInAMergeStayed, TheyGoWithTheNextCompact) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.allocator = CallingAllocator();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TinyModel()));
  ASSERT_OK(store.CreateBranch(id));
  ASSERT_OK(store.Compact());
  const auto left_over = [&]() -> uint64_t {
    const auto files = world->world().files->List(world->path() + "/tables");
    const auto report = store.Verify(VerifyLevel::kHeaders);
    EXPECT_OK(files);
    EXPECT_OK(report);
    return files->size() - report->tables - report->index_tables;
  };
  uint64_t most = 0;
  for (int i = 0; i < 20; ++i) {
    on_allocation = [&] {
      EXPECT_OK(store.CreateBranch(id));
      EXPECT_OK(store.Compact());
    };
    ASSERT_OK(store.Verify(VerifyLevel::kIndex));
    ASSERT_EQ(nullptr, on_allocation);
    most = std::max(most, left_over());
    ASSERT_OK(store.Compact());
    EXPECT_EQ(0U, left_over()) << i;
  }
  EXPECT_GT(most, 0U);
}

}  // namespace
}  // namespace cairn::testing
