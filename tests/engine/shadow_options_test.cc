// SPDX-License-Identifier: Apache-2.0
//
// Property: a step attends to what base/shadow chooses at the borders of what a shadow can be, and
// what cannot be is refused when a session is opened.
#include <limits>

#include "tests/engine/shadow_test.h"

namespace cairn::testing {
namespace {

TEST_F(ShadowTest, WithoutALocalWindowNoTokenMayBeLeft) {
  MakeArena();
  SeededRandom random(11);
  ShadowSpec spec = Small();
  spec.local_tokens = 0;
  AppendTo(chat_, 640);
  ShadowOptions options = OptionsOf(spec);
  options.append_tokens = 0;
  options.tokens_max = 1300;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  EXPECT_EQ(640u, session.info().covered);
  for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, spec, layer, 640, &random);
  EXPECT_FAILS(session.Append({.layer = 0, .keys = queries_, .values = queries_}),
               StatusCode::kBusy, "append_tokens, 0");
  extended_ = true;
  for (const uint64_t tokens : {703u, 704u, 1280u}) {
    SCOPED_TRACE(tokens);
    AppendTo(chat_, tokens);
    ASSERT_OK(session.Extend());
    for (uint32_t layer = 0; layer < kLayers; ++layer) Step(session, spec, layer, tokens, &random);
  }
}

// All chunks are sinks, then all are outliers: nothing is left to select.
TEST_F(ShadowTest, WhereAllIsAlwaysAttendedToNothingIsSelected) {
  MakeArena();
  SeededRandom random(12);
  ASSERT_OK_ASSIGN(const BranchInfo info, chat_.Info());
  for (const bool sinks : {true, false}) {
    ShadowSpec spec = Small();
    spec.sink_tokens = sinks ? std::numeric_limits<uint32_t>::max() : 0;
    spec.outlier_share = sinks ? 0 : 1;
    spec.budget_tokens = 0;
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(info.model));
    AppendTo(chat_, 500);
    ShadowOptions options = OptionsOf(spec);
    options.tokens_max = 1600;
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
    EXPECT_EQ(0u, session.info().budget_chunks);
    EXPECT_EQ(session.info().chunks, session.info().always_chunks);
    Step(session, spec, 0, 500, &random);
    AppendTo(chat_, 1600);
    ASSERT_OK(session.Extend());
    extended_ = true;
    Step(session, spec, 1, 1600, &random);
    extended_ = false;
    // The table of what it has grown to is found, too.
    ASSERT_OK_ASSIGN(ShadowSession other, ShadowSession::Open(arena_, chat_, options));
    Step(other, spec, 1, 1600, &random);
  }
}

// Neither sinks nor outliers: a table without rows.
TEST_F(ShadowTest, WhereNothingIsAlwaysAttendedToTheTableHasNoRows) {
  MakeArena();
  SeededRandom random(13);
  ShadowSpec spec = Small(ShadowKeys::kInt8, 16, 16);
  spec.sink_tokens = 0;
  spec.outlier_share = 0;
  AppendTo(chat_, 1500);
  ShadowOptions options = OptionsOf(spec);
  options.tokens_max = 3000;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  EXPECT_EQ(0u, session.info().always_chunks);
  Step(session, spec, 0, 1500, &random);
  AppendTo(chat_, 3000);
  ASSERT_OK(session.Extend());
  Step(session, spec, 1, 3000, &random);
}

TEST_F(ShadowTest, RoomForMoreTokensThanCanBeCountedIsRefused) {
  AppendTo(chat_, 58);
  MakeArena();
  ShadowOptions options = OptionsOf(Small());
  options.spec.budget_tokens = 0;
  options.append_tokens = std::numeric_limits<uint32_t>::max();
  const auto many = ShadowSession::Open(arena_, chat_, options);
  EXPECT_FALSE(many.ok()) << "opened with " << many->device_bytes() << " bytes of the device";
  options.append_tokens = 4;
  options.spec.local_tokens = std::numeric_limits<uint32_t>::max() / 16 * 16;
  const auto wide = ShadowSession::Open(arena_, chat_, options);
  EXPECT_FALSE(wide.ok()) << "opened with " << wide->device_bytes() << " bytes of the device";
  if (!wide.ok()) return;
  // The consequence: rows of a head run into those of the next one.
  ShadowSession session = *wide;
  SeededRandom random(14);
  Step(session, options.spec, 0, 58, &random);
}

// Open reports what Extend could not do for as long as the branch is as long as it may become.
TEST_F(ShadowTest, WhatCannotBeFetchedLaterIsSaidAtOnce) {
  AppendTo(chat_, 60);
  MakeArena();
  ShadowSpec spec = Small();
  spec.budget_tokens = 0;
  ShadowOptions options = OptionsOf(spec);
  options.tokens_max = 5000;
  options.slots = 1;  // Fewer than the budget.
  EXPECT_FAILS(ShadowSession::Open(arena_, chat_, options), StatusCode::kInvalidArgument, "slots");
}

// Some chunks are chosen, and they can be fetched.
TEST_F(ShadowTest, QueriesThatAreNoNumbersChooseAsManyChunks) {
  AppendTo(chat_, 1500);
  MakeArena();
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(Small())));
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float q : {std::numeric_limits<float>::quiet_NaN(), kMost, -kMost, 0.0F,
                        std::numeric_limits<float>::infinity()}) {
    SCOPED_TRACE(q);
    const std::vector<float> queries(kHeads * kGroup * kChannels, q);
    ASSERT_OK(gpu_->CopyIn(queries_, reinterpret_cast<const std::byte*>(queries.data()),
                           queries.size() * sizeof(float)));
    ASSERT_OK(
        session.Select({.layer = 1, .queries = queries_, .is_fp32 = true, .stream = stream()}));
    ASSERT_OK(session.Rebuild(1, stream()));
    ASSERT_OK(session.Fetch({.layer = 1, .stream = stream()}));
    ASSERT_OK_ASSIGN(const ShadowView view, session.View(1));
    Finish();
    ASSERT_EQ(16u, view.count);
    for (uint32_t i = 0; i < 2 * view.count; ++i) {
      ASSERT_LT(view.chunks[i], session.info().chunks);
      if (i % view.count != 0) {
        ASSERT_LT(view.chunks[i - 1], view.chunks[i]);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::testing
