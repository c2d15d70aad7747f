// SPDX-License-Identifier: Apache-2.0
//
// The bug: token ids without KV that reached direct_ingest_bytes, but not what a record may hold of
// ids, made a table with nothing in it, where a check ended the process. And a table with more
// fragments than one record can name was written, and then refused. Method: ids of some KiB with
// the smallest direct_ingest_bytes; many positions of a model with small pages.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(IdsWithoutKvCrashedTheIngest, TheyGoIntoARecord) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.direct_ingest_bytes = 4096;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TinyModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  uint64_t length = 0;
  for (const uint64_t count : {1023, 1024, 1025, 8192, 100'000}) {
    const std::vector<TokenId> tokens = Tokens(count);
    ASSERT_OK(chat.AppendSync(MakeDelta(tokens)));
    ASSERT_OK_ASSIGN(const Ticket ticket, chat.Append(MakeDelta(tokens)));
    EXPECT_OK(Ticket(ticket).Wait());
    ASSERT_OK_ASSIGN(const auto back, chat.ReadTokens(length + count, length + 2 * count));
    EXPECT_EQ(tokens, back);
    length += 2 * count;
  }
  ASSERT_OK(store.Compact());
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
}

TEST(IdsWithoutKvCrashedTheIngest, FragmentsThatNoRecordNamesGoThroughTheLog) {
  ModelSpec spec = TokenModel();
  spec.groups = {LayerGroup::FullAttention(1, 1, 1, Dtype::kI8)};
  spec.extent_tokens = 64;
  constexpr uint64_t kCount = 64 * 3300;  // A record of this log names 3172 and no more.
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.direct_ingest_bytes = 4096;
  options.hot_tail_bytes = 256 << 10;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  KvSet kv(spec, Layout::kContiguous, 0, kCount);
  kv.Write(kSeed, 0, kCount);
  const std::vector<TokenId> tokens = Tokens(kCount);
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, kCount)}));
  KvSet back(spec, Layout::kContiguous, 0, kCount);
  RestoreRequest request;
  request.into = back.View(0, kCount);
  ASSERT_OK(chat.Restore(request));
  EXPECT_TRUE(kv == back);
}

}  // namespace
}  // namespace cairn::testing
