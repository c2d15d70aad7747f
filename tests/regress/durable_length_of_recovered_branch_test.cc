// SPDX-License-Identifier: Apache-2.0
//
// The bug: the first unsynced append to a branch that had been recovered made its durable_length()
// fall to 0, although everything recovered was durable.
// Method: that append.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(DurableLengthOfRecoveredBranch, DoesNotFall) {
  const auto world = TestWorld::Make("simulated");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  const std::vector<TokenId> tokens = Tokens(10);
  ASSERT_OK(chat.AppendSync({.tokens = tokens}, {.durability = Durability::kPower}));
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, world->Open());
  ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
  ASSERT_OK(chat.AppendSync({.tokens = tokens}, {.durability = Durability::kMemory}));
  EXPECT_EQ(20u, *chat.length());
  EXPECT_EQ(10u, *chat.durable_length());
}

}  // namespace
}  // namespace cairn::testing
