// SPDX-License-Identifier: Apache-2.0
//
// The bug: Close ended the executor while restores that post jobs to it were under way.
// Method: asynchronous cold restores of many windows, closed at once, many times, on real threads.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(RestoreCrashedInClose, CloseWaits) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  {
    ASSERT_OK_ASSIGN(Store store, world->Open());
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
    KvSet kv(spec, Layout::kContiguous, 0, 400);
    const std::vector<TokenId> tokens = Tokens(400);
    ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, 400)}));
  }
  for (int round = 0; round < 40; ++round) {
    KvSet room(spec, Layout::kContiguous, 0, 400);
    RestoreRequest request;
    request.into = room.View(0, 400);
    ASSERT_OK_ASSIGN(Store store, world->Open());
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    ASSERT_OK_ASSIGN(Ticket ticket, chat.RestoreAsync(request));
    world->world().scheduler->Sleep(static_cast<uint64_t>(round) * 20'000);
    EXPECT_OK(store.Close());
    EXPECT_TRUE(ticket.done());
    EXPECT_TRUE(ticket.status().ok() || ticket.status().code() == StatusCode::kInvalidState)
        << ticket.status().ToString();
  }
}

}  // namespace
}  // namespace cairn::testing
