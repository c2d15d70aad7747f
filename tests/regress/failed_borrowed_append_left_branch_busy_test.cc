// SPDX-License-Identifier: Apache-2.0
//
// The bug: an asynchronous append on borrowed memory that failed before its first part was written
// never ended its gathering, and the branch was busy for ever.
// Method: a position that fits no record of a small segment; then an ordinary append.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(FailedBorrowedAppendLeftBranchBusy, TheBranchIsFree) {
  ModelSpec spec = TokenModel("giant");
  spec.groups.push_back(LayerGroup::FullAttention(64, 32, 64, Dtype::kBf16));  // 512 KiB per token.
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, 3);
  const std::vector<TokenId> tokens = Tokens(3);
  auto ticket = chat.Append({.tokens = tokens, .kv = kv.View(0, 3)});
  EXPECT_FAILS(ticket.ok() ? ticket->Wait() : ticket.status(), StatusCode::kInvalidArgument);
  ASSERT_OK_ASSIGN(Ticket next, chat.Append({.tokens = tokens}));
  EXPECT_OK(next.Wait());
}

}  // namespace
}  // namespace cairn::testing
