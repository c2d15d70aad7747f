// SPDX-License-Identifier: Apache-2.0
//
// The bug: a restore held every table of its plan open until it was over. Of a branch in a thousand
// and more tables it needed as many descriptors, and where a process may have 1024 it failed, each
// time.
// Method: a process that may have few, by one restore and by several at once.
#include <thread>

#include "tests/engine/engine_test.h"
#include "tests/support/few_descriptors.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTables = 60, kEach = 4;  // Positions of an append.

class ABranchOfManyTablesWasNotRestored : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ABranchOfManyTablesWasNotRestored,
                         ::testing::Values("io_uring", "threads"), NameOf);

TEST_P(ABranchOfManyTablesWasNotRestored, WithFewDescriptors) {
  const auto world = TestWorld::Make(GetParam());
  if (world == nullptr) GTEST_SKIP() << GetParam() << " is not granted on this machine";
  const ModelSpec model = WideModel();
  const FewDescriptors few(40);
  Options options = world->options();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "long"}));
  for (uint64_t at = 0; at < kTables * kEach; at += kEach) {
    ASSERT_OK(AppendSome(branch, model, at, kEach));
    ASSERT_OK(store.Compact());
  }
  ASSERT_EQ(kTables, store.Metrics().tables);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_TRUE(HasKv(branch, model, 0, kTables * kEach));
    std::vector<std::thread> readers;
    for (int i = 0; i < 6; ++i) {
      readers.emplace_back([&] { EXPECT_TRUE(HasKv(branch, model, 0, kTables * kEach)); });
    }
    for (std::thread& reader : readers) reader.join();
    ASSERT_OK(store.Close());
    options.max_memory_bytes = 16 << 20;  // Not out of the page cache.
    ASSERT_OK_ASSIGN(store, world->Open(options));
    ASSERT_OK_ASSIGN(branch, store.FindBranch("long"));
  }
  EXPECT_TRUE(store.Verify(VerifyLevel::kAll)->damages.empty());
}

}  // namespace
}  // namespace cairn::testing
