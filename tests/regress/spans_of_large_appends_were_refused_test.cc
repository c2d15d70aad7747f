// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append that is cut into parts was checked with the last record alone, which has no
// tokens: content spans were refused when all had been written, and KV at a wrong position was
// called a corruption.
// Method: 800 KiB into segments of 256 KiB, with a span; and one position too far.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(SpansOfLargeAppends, AreTaken) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  KvSet kv(spec, Layout::kContiguous, 0, 101);
  kv.Write(1, 0, 101);
  const std::vector<TokenId> tokens = Tokens(100);
  const uint64_t records = store.Metrics().log_records;
  EXPECT_FAILS(chat.AppendSync({.tokens = tokens, .kv = kv.View(1, 99)}),
               StatusCode::kInvalidArgument, "begins at position 1");
  EXPECT_EQ(records, store.Metrics().log_records);
  const ContentSpan spans[] = {{.begin = 10, .end = 100, .hash = {1, 2}, .atomic = true}};
  Delta delta{.tokens = tokens, .kv = kv.View(0, 100)};
  delta.spans = spans;
  ASSERT_OK(chat.AppendSync(delta));
  ASSERT_OK_ASSIGN(const auto found, chat.Spans(0, 100));
  ASSERT_EQ(1U, found.size());
  EXPECT_EQ(10U, found[0].begin);
}

}  // namespace
}  // namespace cairn::testing
