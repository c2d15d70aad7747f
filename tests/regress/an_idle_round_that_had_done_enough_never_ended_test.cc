// SPDX-License-Identifier: Apache-2.0
//
// The bug: an idle round that had rewritten all that one may began again and did nothing, for ever:
// a core was busy, Compact and Close never returned, and the log was not given back any more.
// Method: more is half dead than one idle round gets through; then Compact.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kBranches = 16, kTokens = 1280;  // 10 MiB each.

TEST(AnIdleRoundThatHadDoneEnough, Ends) {
  const ModelSpec model = WideModel();
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> branches;
  for (uint64_t i = 0; i < kBranches; ++i) {
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = std::to_string(i)}));
    for (uint64_t at = 0; at < kTokens; at += 64) ASSERT_OK(AppendSome(branch, model, at, 64));
    branches.push_back(branch);
  }
  ASSERT_OK(store.Compact());
  const auto files_to_live = [&] {
    const StoreMetrics metrics = store.Metrics();
    return static_cast<double>(metrics.table_bytes) / static_cast<double>(metrics.table_live_bytes);
  };
  for (uint64_t i = 0; i < kBranches; i += 4) ASSERT_OK(branches[i].Drop());
  EXPECT_LT(1.2, files_to_live());
  for (int i = 0; i < 1000 && files_to_live() > 1.1; ++i) {
    world->world().scheduler->Sleep(10'000'000);
  }
  EXPECT_GT(1.1, files_to_live());
  ASSERT_OK(store.Compact());
  for (uint64_t i = 1; i < kBranches; i += 4) EXPECT_TRUE(HasKv(branches[i], model, 0, kTokens));
  ASSERT_OK(store.Close());
}

}  // namespace
}  // namespace cairn::testing
