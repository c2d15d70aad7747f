// SPDX-License-Identifier: Apache-2.0
//
// The bug: a recurrent state of 16 MiB and more, which does not get smaller, is with the header of
// its codec more than a frame of a table could hold: a check ended the process when it was sealed.
// Method: rows of 16 MiB, and of the largest size, of bytes that do not pack: appended, sealed,
// verified, opened again and restored.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

void RoundTrip(uint32_t row_bytes) {
  SCOPED_TRACE(row_bytes);
  ModelSpec spec = TokenModel();
  spec.groups = {LayerGroup::Recurrent(1, row_bytes)};
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.segment_bytes = 128u << 20;
  options.hot_tail_bytes = 256u << 20;
  options.max_memory_bytes = 1u << 30;
  options.executor_threads = 1;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  KvSet kv(spec, Layout::kContiguous, 0, 1);
  kv.Write(kSeed, 0, 1);
  const std::vector<TokenId> tokens = Tokens(1);
  ASSERT_OK(chat.AppendSync({.tokens = tokens, .kv = kv.View(0, 1)}));
  ASSERT_OK(store.Compact());
  ASSERT_OK_ASSIGN(const VerifyReport report, store.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty()) << report.damages[0].what;
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, world->Open(options));
  ASSERT_OK_ASSIGN(chat, store.FindBranch("chat"));
  KvSet back(spec, Layout::kContiguous, 0, 1);
  RestoreRequest request;
  request.into = back.View(0, 1);
  ASSERT_OK(chat.Restore(request));
  EXPECT_TRUE(kv == back);
}

TEST(ALargeRowCrashedTheSeal, ItIsSealed) {
  RoundTrip(16u << 20);
  RoundTrip(kMaxRowBytes);
}

// What is more than a record holds is refused before anything is written.
TEST(ALargeRowCrashedTheSeal, WhatNoRecordHoldsIsRefused) {
  ModelSpec spec = TokenModel();
  spec.groups = {LayerGroup::Recurrent(1, 300'000)};
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  KvSet kv(spec, Layout::kContiguous, 0, 1);
  const std::vector<TokenId> tokens = Tokens(1);
  const uint64_t records = store.Metrics().log_records;
  const Delta delta{.tokens = tokens, .kv = kv.View(0, 1)};
  EXPECT_FAILS(chat.AppendSync(delta), StatusCode::kInvalidArgument, "kv: one position");
  EXPECT_FAILS(chat.Append(delta), StatusCode::kInvalidArgument, "kv: one position");
  ASSERT_OK(chat.AppendSync(MakeDelta(tokens)));
  EXPECT_FAILS(chat.Fill(*delta.kv), StatusCode::kInvalidArgument, "kv: one position");
  EXPECT_EQ(records + 1, store.Metrics().log_records);
}

}  // namespace
}  // namespace cairn::testing
