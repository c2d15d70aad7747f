// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append of more than max_bytes, which no eviction makes room for, took the KV of all
// other branches before it was kNoSpace.
// Method: some branches, and an append that is larger than the store.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(AnAppendBeyondTheCapEvictedOthers, BeforeItWasRefused) {
  const auto world = TestWorld::Make("simulated");
  const ModelSpec model = WideModel();
  Options options = world->options();
  options.max_bytes = 4 << 20;
  options.evict = Evict::kKv;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  std::vector<Branch> others;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id));
    ASSERT_OK(AppendSome(other, model, 0, 8));
    others.push_back(other);
  }
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
  const uint64_t count = options.max_bytes / model.token_bytes();
  EXPECT_FAILS(AppendSome(branch, model, 0, count), StatusCode::kNoSpace);
  EXPECT_EQ(0U, store.Metrics().evicted_bytes);
  for (const Branch& other : others) EXPECT_TRUE(HasKv(other, model, 0, 8));
  EXPECT_OK(AppendSome(branch, model, 0, 64));
}

}  // namespace
}  // namespace cairn::testing
