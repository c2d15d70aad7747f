// SPDX-License-Identifier: Apache-2.0
//
// The bug: a Fill at kPower that found all KV there said yes at once, also when what had put it
// there was still in memory. So did the retry of one whose outcome was unknown.
// Method: an append at kMemory, the same KV filled at kPower, and the power goes.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(FillWithNothingToDo, IsAsSafeAsWasAskedFor) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  const ModelSpec spec = TinyModel();
  ASSERT_OK_ASSIGN(Store store, Store::Open("store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  KvSet kv(spec, Layout::kContiguous, 0, 5);
  const std::vector<TokenId> tokens = Tokens(5);
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, 5)},
                            {.durability = Durability::kMemory}));
  ASSERT_OK(chat.Fill(*kv.View(0, 5), {.durability = Durability::kPower}));

  const io::SimWorld found = io::CrashWorld(*machine.disk, io::CrashChoice::LoseAll());
  options.world = std::make_shared<io::World>(found.world());
  ASSERT_OK_ASSIGN(const Store again, Store::Open("store", options));
  ASSERT_OK_ASSIGN(const Branch branch, again.FindBranch("chat"));
  EXPECT_EQ(5u, *branch.length());
}

}  // namespace
}  // namespace cairn::testing
