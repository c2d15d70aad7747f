// SPDX-License-Identifier: Apache-2.0
//
// The bug: a borrowed append that was cancelled before its job began kept its branch busy until the
// job came to run.
// Method: on the simulated machine no job runs between Append and Cancel; the branch must be free.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(CancelledAppendLeftBranchBusy, TheBranchIsFreeAtOnce) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("simulated");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, 256);
  const std::vector<TokenId> tokens = Tokens(256);
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append({.tokens = tokens, .kv = kv.View(0, 256)}));
  EXPECT_FAILS(ticket.Cancel(), StatusCode::kCancelled, "before it began");
  EXPECT_OK(chat.Rewind(0));
  EXPECT_OK(chat.Append({.tokens = tokens}));
  EXPECT_EQ(256u, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
