// SPDX-License-Identifier: Apache-2.0
//
// Property: what a session does not have, or no more, it does not show; and what happens around it
// leaves it as it is.
#include "tests/engine/shadow_test.h"

namespace cairn::testing {
namespace {

TEST_F(ShadowTest, AfterAnExtendThatFailedNothingIsShown) {
  Start({.seed = 5, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
  Find();
  uint64_t tokens = 500;
  AppendTo(chat_, tokens);
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.tokens_max = 6000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  SeededRandom random(15);
  extended_ = true;
  int failures = 0;
  for (uint64_t fails_at = 1; fails_at < 40; ++fails_at) {
    SCOPED_TRACE(fails_at);
    Step(session, Small(), 0, tokens, &random);
    const uint64_t had = tokens;
    tokens += 130;
    AppendTo(chat_, tokens);
    device_->FailAt(device_->calls() + fails_at);
    const Status failed = session.Extend();
    device_->FailAt(UINT64_MAX);
    if (failed.ok()) continue;
    ++failures;
    const auto view = session.View(0);
    EXPECT_FAILS(view.status(), StatusCode::kInvalidState, "");
    // Rows that are claimed to exist, and were never put.
    if (view.ok()) {
      EXPECT_EQ(had - (had - 32) / 64 * 64 + session.info().always_chunks * 4,
                view->resident_tokens);
    }
    EXPECT_FAILS(session.Fetch({.layer = 0, .stream = stream()}), StatusCode::kInvalidState, "");
    EXPECT_FAILS(session.Rebuild(0, stream()), StatusCode::kInvalidState, "");
    ASSERT_OK(session.Extend());
  }
  EXPECT_GT(failures, 3);
}

// The queries' choice is copied from the session's memory when the stream comes to it.
TEST_F(ShadowTest, ASessionEndsBehindWhatItHasEnqueued) {
  AppendTo(chat_, 1500);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    EndDevice();
    Start({.seed = seed});
    Find();
    MakeArena();
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
    ASSERT_OK(
        session.Select({.layer = 0, .queries = queries_, .is_fp32 = true, .stream = stream()}));
    ASSERT_OK(session.Rebuild(0, stream()));
    ASSERT_OK(session.Fetch({.layer = 0, .stream = stream(), .mode = SparseMode::kRelaxed}));
    session = {};
    device_->RunAll();
    ASSERT_OK(device_->lost());
  }
}

// As above, with keys that are rebuilt in another stream.
TEST_F(ShadowTest, ASessionEndsBehindAllStreamsOfALayer) {
  AppendTo(chat_, 1500);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    EndDevice();
    Start({.seed = seed});
    Find();
    MakeArena();
    ASSERT_OK_ASSIGN(const gpu::Stream second, device_->NewStream(gpu::Priority::kHigh));
    ASSERT_OK_ASSIGN(const gpu::Event selected, device_->NewEvent());
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
    ASSERT_OK(
        session.Select({.layer = 0, .queries = queries_, .is_fp32 = true, .stream = stream()}));
    ASSERT_OK(device_->Record(stream_, selected));
    ASSERT_OK(device_->StreamWait(second, selected));
    ASSERT_OK(session.Rebuild(0, gpu::SimDevice::HandleOf(second)));
    ASSERT_OK(session.Fetch({.layer = 0, .stream = stream()}));
    ASSERT_OK(
        session.Append({.layer = 0, .keys = queries_, .values = queries_, .stream = stream()}));
    session = {};
    device_->RunAll();
    ASSERT_OK(device_->lost());
    device_->Return(second);
    device_->Return(selected);
  }
}

// A key out of range is not for ever: the branch may be rewound, and go on with others.
TEST_F(ShadowTest, ASessionOutlivesAKeyOutOfRange) {
  AppendTo(chat_, 500);
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.tokens_max = 3000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  const auto row = kv_->Row(0, 1, 0, 1, 710);
  uint16_t was = 0;
  const uint16_t nan = 0x7fc0;
  std::memcpy(&was, row.data() + 6, 2);
  std::memcpy(row.data() + 6, &nan, 2);
  AppendTo(chat_, 1200);
  EXPECT_FAILS(session.Extend(), StatusCode::kInvalidArgument,
               "layer 1, head 1: the key of position 710");
  std::memcpy(row.data() + 6, &was, 2);
  ASSERT_OK(chat_.Rewind(700));
  AppendTo(chat_, 1100);
  ASSERT_OK(session.Extend());
  SeededRandom random(20);
  extended_ = true;
  for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, Small(), layer, 1100, &random);
}

TEST_F(ShadowTest, AClosedStoreEndsASession) {
  AppendTo(chat_, 700);
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.tokens_max = 3000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  ASSERT_OK(session.Select({.layer = 0, .queries = queries_, .is_fp32 = true, .stream = stream()}));
  ASSERT_OK(store_.Close());
  EXPECT_FAILS(session.Fetch({.layer = 0, .stream = stream()}), StatusCode::kInvalidState, "");
  EXPECT_FAILS(session.View(0), StatusCode::kInvalidState, "");
  EXPECT_FAILS(session.Extend(), StatusCode::kInvalidState, "");
  EXPECT_FAILS(session.Save(), StatusCode::kInvalidState, "");
  EXPECT_FAILS(BuildShadow(chat_), StatusCode::kInvalidState, "");
  EXPECT_FAILS(ShadowSession::Open(arena_, chat_, options), StatusCode::kInvalidState, "");
  EXPECT_EQ(700u, session.info().tokens);
}

// The table of what lies on a node that became part of the one below it.
TEST_F(ShadowTest, AJoinAboveASessionLeavesItAsItIs) {
  AppendTo(chat_, 1500);
  MakeArena();
  ASSERT_OK(BuildShadow(chat_, {.spec = Small()}));
  EXPECT_EQ(1u, store_.Metrics().shadows_made);
  EXPECT_GE(store_.Metrics().shadow_tokens_read, 1400u);
  ASSERT_OK_ASSIGN(Branch fork, chat_.ForkAt(1500, {}));
  AppendTo(fork, 1502);
  ShadowOptions options = OptionsOf(Small());
  options.tokens_max = 3000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, fork, options));
  EXPECT_EQ(0u, session.info().tokens_read);
  SeededRandom random(21);
  Step(session, Small(), 0, 1502, &random);
  ASSERT_OK(chat_.Drop());
  ASSERT_OK(store_.Compact());
  Step(session, Small(), 1, 1502, &random);
  ASSERT_OK_ASSIGN(ShadowSession other, ShadowSession::Open(arena_, fork, options));
  EXPECT_EQ(0u, other.info().tokens_read);
  Step(other, Small(), 1, 1502, &random);
  AppendTo(fork, 2600);
  ASSERT_OK(session.Extend());
  extended_ = true;
  Step(session, Small(), 0, 2600, &random);
}

// A session that could not be opened leaves nothing of the arena's room taken, wherever it failed.
TEST_F(ShadowTest, AnOpenThatFailsGivesAllBack) {
  Start({.seed = 5, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
  Find();
  AppendTo(chat_, 1200);
  MakeArena();
  ASSERT_OK(BuildShadow(chat_, {.spec = Small()}));
  SeededRandom random(16);
  int failures = 0;
  for (uint64_t fails_at = 0;; ++fails_at) {
    ASSERT_LT(fails_at, 500u);
    device_->FailAt(device_->calls() + fails_at);
    auto opened = ShadowSession::Open(arena_, chat_, OptionsOf(Small()));
    device_->FailAt(UINT64_MAX);
    if (opened.ok()) {
      if (fails_at > 60) break;
      continue;
    }
    ++failures;
    EXPECT_EQ(0u, arena_.device_bytes()) << opened.status().ToString();
  }
  EXPECT_GT(failures, 10);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  Step(session, Small(), 1, 1200, &random);
}

}  // namespace
}  // namespace cairn::testing
