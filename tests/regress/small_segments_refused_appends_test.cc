// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append below the limit of one record was not cut into parts although a segment of
// 256 KiB cannot hold it, and was refused as an invalid argument.
// Method: 1 MiB, given in the call and borrowed.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(SmallSegmentsRefusedAppends, AnySizeIsTaken) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, 228);
  kv.Write(1, 0, 228);
  const std::vector<TokenId> tokens = Tokens(128);
  EXPECT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, 128)}));
  ASSERT_OK_ASSIGN(Ticket ticket,
                   chat.Append({.tokens = std::span(tokens).first(100), .kv = kv.View(128, 100)}));
  EXPECT_OK(ticket.Wait());
  KvSet got(spec, Layout::kContiguous, 0, 228);
  ASSERT_OK(chat.Restore({.into = got.View(0, 228)}));
  EXPECT_TRUE(got == kv);
}

}  // namespace
}  // namespace cairn::testing
