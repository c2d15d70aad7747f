// SPDX-License-Identifier: Apache-2.0
//
// Property: a step attends to what base/shadow chooses from the stored keys, and what it attends to
// is what is stored, byte for byte; however the shadow came to be.
#include "tests/engine/shadow_test.h"

#include <limits>

#include "tests/gpu/callers_stream.h"

namespace cairn::testing {
namespace {

TEST_F(ShadowTest, AttendsToWhatTheOracleChooses) {
  AppendTo(chat_, 1500);
  MakeArena();
  SeededRandom random(1);
  for (const ShadowSpec& spec :
       {Small(), Small(ShadowKeys::kInt8, 8, 8), Small(ShadowKeys::kExact, 1, 16),
        Small(ShadowKeys::kInt4, 16, 4), Small(ShadowKeys::kExact, 2, 8)}) {
    SCOPED_TRACE(std::string(ShadowKeysName(spec.keys)) + " " + std::to_string(spec.chunk_tokens));
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
    EXPECT_EQ(1472u - 64 * (spec.local_tokens > 28 ? 1 : 0), session.info().covered);
    EXPECT_EQ(session.info().covered, session.info().tokens_read);
    EXPECT_GT(session.info().table_bytes, 0u);
    EXPECT_LE(session.device_bytes(), arena_.device_bytes());
    for (int step = 0; step < 3; ++step) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, spec, layer, 1500, &random);
    }
    EXPECT_EQ(6u, session.stats().fetches);
  }
}

TEST_F(ShadowTest, ALongerContextExtendsIt) {
  MakeArena();
  SeededRandom random(2);
  const ShadowSpec spec = Small();
  uint64_t covered = 0;
  for (const uint64_t tokens : {700u, 1200u, 2500u, 2530u, 6000u}) {
    SCOPED_TRACE(tokens);
    AppendTo(chat_, tokens);
    ASSERT_OK_ASSIGN(const ShadowInfo info, BuildShadow(chat_, {.spec = spec}));
    EXPECT_EQ((tokens - 32) / 64 * 64, info.covered);
    // Keys in a whole part are not read again.
    EXPECT_EQ(info.covered == covered ? 0 : info.covered - covered / 1024 * 1024, info.tokens_read);
    covered = info.covered;
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
    EXPECT_EQ(0u, session.info().tokens_read);
    for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, spec, layer, tokens, &random);
  }
}

TEST_F(ShadowTest, ForksAndLaterProcessesFindIt) {
  AppendTo(chat_, 1500);
  ASSERT_OK(BuildShadow(chat_, {.spec = Small()}));
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(1480, {.name = "fork"}));
  ASSERT_OK_ASSIGN(const ShadowInfo of_fork, FindShadow(fork, {.spec = Small()}));
  EXPECT_EQ(1408u, of_fork.covered);
  // Before what it covers there is none.
  ASSERT_OK_ASSIGN(Branch early, chat_.ForkAt(1000, {.name = "early"}));
  EXPECT_FAILS(FindShadow(early, {.spec = Small()}), StatusCode::kNotFound, "");
  EXPECT_FAILS(FindShadow(chat_, {.spec = Small(ShadowKeys::kInt8)}), StatusCode::kNotFound, "");
  ASSERT_OK(store_.Compact());
  fork = early = {};
  EndDevice();
  Start({.seed = 3});
  Find();
  ASSERT_OK_ASSIGN(fork, store_.FindBranch("fork"));
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.build = false;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, fork, options));
  SeededRandom random(3);
  Step(session, Small(), 1, 1480, &random);
  ASSERT_OK(DropShadow(chat_, {.spec = Small()}));
  EXPECT_FAILS(ShadowSession::Open(arena_, fork, options), StatusCode::kNotFound, "");
  EXPECT_FAILS(DropShadow(chat_, {.spec = Small()}), StatusCode::kNotFound, "");
  Step(session, Small(), 0, 1480, &random);  // It has it.
}

TEST_F(ShadowTest, WhatIsAppendedIsAttendedTo) {
  AppendTo(chat_, 800);
  MakeArena();
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  ASSERT_OK_ASSIGN(std::byte* const rows, gpu_->Allocate(2 * kHeads * kChannels * 2));
  for (uint64_t position = 800; position < 804; ++position) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t plane = 0; plane < 2; ++plane) {
        const std::vector<uint16_t> row = Rows(1, plane, head, position, position + 1);
        ASSERT_OK(gpu_->CopyIn(rows + (plane * kHeads + head) * 32,
                               reinterpret_cast<const std::byte*>(row.data()), 32));
      }
    }
    const ShadowRows token{
        .layer = 1, .keys = rows, .values = rows + kHeads * 32, .stream = stream()};
    ASSERT_OK(session.Append(token));
    Finish();
  }
  SeededRandom random(4);
  // The shadow is that of the 800 tokens; four more are behind it.
  const uint64_t covered = session.info().covered;
  EXPECT_EQ(768u, covered);
  Step(session, Small(), 1, 804, &random);
  Step(session, Small(), 0, 800, &random);
  EXPECT_FAILS(session.Append({.layer = 1, .keys = rows, .values = rows, .stream = stream()}),
               StatusCode::kBusy, "append_tokens");
  gpu_->Free(rows);
}

TEST_F(ShadowTest, GrowsWithItsBranch) {
  MakeArena();
  SeededRandom random(8);
  ASSERT_OK_ASSIGN(const BranchInfo info, chat_.Info());
  for (const ShadowKeys keys : {ShadowKeys::kInt4, ShadowKeys::kExact}) {
    ShadowSpec spec = Small(keys);
    spec.outlier_share = 0.02;
    spec.budget_tokens = 0;
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(info.model));
    AppendTo(chat_, 60);
    ShadowOptions options = OptionsOf(spec);
    options.tokens_max = 5000;
    extended_ = true;
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
    EXPECT_EQ(0u, session.info().covered);
    for (const uint64_t tokens : {61u, 200u, 201u, 1000u, 1100u, 2500u, 2600u, 5000u}) {
      SCOPED_TRACE(tokens);
      AppendTo(chat_, tokens);
      ASSERT_OK(session.Extend());
      EXPECT_EQ(tokens, session.info().tokens);
      EXPECT_EQ(tokens < 96 ? 0 : (tokens - 32) / 64 * 64, session.info().covered);
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        Step(session, spec, layer, tokens, &random);
      }
    }
    EXPECT_FAILS(session.Extend(4999), StatusCode::kConflict, "token 5000");
    AppendTo(chat_, 5001);
    EXPECT_FAILS(session.Extend(), StatusCode::kInvalidArgument, "tokens_max is 5000");
    ASSERT_OK(session.Extend(5000));
    ASSERT_OK(chat_.Rewind(4000));
    AppendTo(chat_, 5000);
    EXPECT_FAILS(session.Extend(), StatusCode::kConflict, "rewound");
    Step(session, spec, 0, 5000, &random);
    ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  }
}

TEST_F(ShadowTest, AnExtendThatFailsIsSaidAndTriedAgain) {
  Start({.seed = 5, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
  Find();
  AppendTo(chat_, 500);
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.tokens_max = 3000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  AppendTo(chat_, 1200);
  extended_ = true;
  SeededRandom random(9);
  int failures = 0;
  for (const uint64_t fails_at : {1, 2, 3, 5, 8, 13, 21, 34}) {
    device_->FailAt(device_->calls() + fails_at);
    const Status failed = session.Extend();
    device_->FailAt(UINT64_MAX);
    if (failed.ok()) continue;
    ++failures;
    EXPECT_FAILS(session.Select({.layer = 0, .queries = queries_, .stream = stream()}),
                 StatusCode::kInvalidState, "call it again");
  }
  EXPECT_GT(failures, 1);
  ASSERT_OK(session.Extend());
  for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, Small(), layer, 1200, &random);
}

TEST_F(ShadowTest, AShortContextIsDense) {
  AppendTo(chat_, 90);
  MakeArena();
  ASSERT_OK_ASSIGN(const ShadowInfo info, BuildShadow(chat_, {.spec = Small()}));
  EXPECT_EQ(0u, info.covered);
  EXPECT_EQ(0u, info.table_bytes);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  SeededRandom random(5);
  Step(session, Small(), 0, 90, &random);
  EXPECT_FAILS(DropShadow(chat_, {.spec = Small()}), StatusCode::kNotFound, "too short");
}

// All chunks within the budget: nothing is left out.
TEST_F(ShadowTest, ABudgetOfAllChunksAttendsToAll) {
  AppendTo(chat_, 500);
  MakeArena();
  ShadowSpec spec = Small();
  spec.budget_tokens = 500;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
  EXPECT_EQ(session.info().chunks, session.info().always_chunks + session.info().budget_chunks);
  SeededRandom random(6);
  Step(session, spec, 1, 500, &random);
}

TEST_F(ShadowTest, ADamagedTableIsMadeAgain) {
  AppendTo(chat_, 1500);
  MakeArena();
  ASSERT_OK(BuildShadow(chat_, {.spec = Small()}));
  SeededRandom random(7);
  std::string table;
  for (const std::string& file : sim_.disk->Files()) {
    if (file.ends_with(".snapshot")) table = file;
  }
  ASSERT_NE("", table);
  ASSERT_OK_ASSIGN(const io::FileInfo info, sim_.disk->Info(table));
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK(sim_.disk->FlipBit(table, random.Below(info.bytes),
                                 static_cast<unsigned>(random.Below(8))));
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
    Step(session, Small(), 0, 1500, &random);
    if (session.info().tokens_read != 0) break;  // It was met, and is another file now.
  }
}

TEST_F(ShadowTest, WhatIsWrongIsSaid) {
  AppendTo(chat_, 1500);
  MakeArena();
  const auto open = [&](const ShadowOptions& options) {
    return ShadowSession::Open(arena_, chat_, options).status();
  };
  ShadowOptions options = OptionsOf(Small());
  options.query_heads = 3;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "query_heads is 3");
  options = OptionsOf(Small());
  options.group = 1;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "group is 1");
  options = OptionsOf(Small());
  options.spec.chunk_tokens = 0;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "chunk_tokens is 0");
  options = OptionsOf(Small());
  options.spec.budget_tokens = 1504;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "budget_tokens is 1504");
  options = OptionsOf(Small());
  options.end = 1501;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "end is 1501");
  // Nobody said how these keys are rotated.
  options = OptionsOf(ShadowSpec::Published(kHeads * kChannels));
  options.spec.budget_tokens = 64;
  EXPECT_FAILS(open(options), StatusCode::kInvalidArgument, "low_rank");
  options = OptionsOf(Small());
  options.build = false;
  EXPECT_FAILS(open(options), StatusCode::kNotFound, "");
  options.build = true;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  EXPECT_FAILS(session.Fetch({.layer = 0}), StatusCode::kInvalidState, "nothing is selected");
  EXPECT_FAILS(session.Rebuild(0, stream()), StatusCode::kInvalidState, "nothing is selected");
  EXPECT_FAILS(session.View(0), StatusCode::kInvalidState, "nothing was fetched");
  EXPECT_FAILS(session.Select({.layer = 2, .queries = queries_}), StatusCode::kInvalidArgument,
               "layer is 2");
  EXPECT_FAILS(session.Select({.layer = 0}), StatusCode::kInvalidArgument, "queries is null");
  EXPECT_FAILS(session.Append({.layer = 0}), StatusCode::kInvalidArgument, "null");
  {
    CallersStream graph(device_.get());
    graph.Capture([&] {
      EXPECT_FAILS(session.Select({.layer = 0, .queries = queries_, .stream = graph.handle()}),
                   StatusCode::kInvalidArgument, "captured into a graph");
    });
    ASSERT_OK(session.Select({.layer = 0, .queries = queries_, .stream = graph.handle()}));
  }
  EXPECT_FAILS(ShadowSession().Save(), StatusCode::kInvalidState, "empty handle");
  EXPECT_FAILS(ShadowSession::Open({}, chat_, options), StatusCode::kInvalidState, "empty handle");

  // A key that is no number.
  const auto row = kv_->Row(0, 1, 0, 1, 1510);
  const uint16_t nan = 0x7fc0;
  std::memcpy(row.data() + 6, &nan, 2);
  AppendTo(chat_, 1600);
  EXPECT_FAILS(BuildShadow(chat_, {.spec = Small()}), StatusCode::kInvalidArgument,
               "layer 1, head 1: the key of position 1510");
  ASSERT_OK(chat_.Drop());
  EXPECT_FAILS(BuildShadow(chat_, {.spec = Small()}), StatusCode::kNotFound, "");
}

}  // namespace
}  // namespace cairn::testing
