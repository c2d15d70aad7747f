// SPDX-License-Identifier: Apache-2.0
//
// Property: a session of low-rank keys that grows with its branch chooses and rebuilds what a
// session opened on the longer branch does, bit for bit, whether its vectors go on or not; where
// there is no room for others it is as it was.
#include "tests/engine/shadow_low_rank_test.h"

namespace cairn::testing {
namespace {

class ShadowLowRankGrowthTest : public ShadowLowRankTest {
 protected:
  static ShadowSpec OfRank(uint32_t rank) {
    ShadowSpec spec = Small(ShadowKeys::kLowRank);
    spec.rank = rank;
    return spec;
  }
  static ShadowOptions Growing(const ShadowSpec& spec) {
    ShadowOptions options = OptionsOf(spec);
    options.tokens_max = kTokensMax;
    return options;
  }

  // The choice of a step of a layer, and the keys that it rebuilds.
  std::vector<std::byte> Rebuilt(ShadowSession& session, uint32_t layer, uint64_t seed) {
    std::vector<std::byte> all;
    SeededRandom random(seed);
    std::vector<float> queries(kHeads * kGroup * kChannels);
    for (float& q : queries) q = Drawn(&random);
    EXPECT_OK(gpu_->CopyIn(queries_, reinterpret_cast<const std::byte*>(queries.data()),
                           queries.size() * sizeof(float)));
    EXPECT_OK(
        session.Select({.layer = layer, .queries = queries_, .is_fp32 = true, .stream = stream()}));
    EXPECT_OK(session.Fetch({.layer = layer, .stream = stream()}));
    EXPECT_OK(session.Rebuild(layer, stream()));
    const auto view = session.View(layer);
    EXPECT_OK(view);
    Finish();
    for (uint32_t head = 0; head < kHeads; ++head) {
      const auto* const chunks =
          reinterpret_cast<const std::byte*>(view->chunks + size_t{head} * view->stride);
      const std::byte* const keys = view->keys.base + head * view->keys.head_stride;
      all.insert(all.end(), chunks, chunks + view->count * sizeof(uint32_t));
      all.insert(all.end(), keys, keys + view->count * view->keys.piece_bytes);
    }
    return all;
  }
  // Several steps, so that all parts of the context are met.
  void ExpectSame(ShadowSession& session, const ShadowSpec& spec, uint64_t steps = 6) {
    ASSERT_OK_ASSIGN(ShadowSession fresh, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
    EXPECT_EQ(fresh.info().covered, session.info().covered);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint64_t seed = 1; seed <= steps; ++seed) {
        const std::vector<std::byte> want = Rebuilt(fresh, layer, seed);
        EXPECT_FALSE(want.empty());
        ASSERT_EQ(want, Rebuilt(session, layer, seed)) << "layer " << layer << ", seed " << seed;
      }
    }
  }
  static bool CameFromATable(const ShadowSession& session) {
    return session.info().table_bytes != 0;
  }
};

TEST_F(ShadowLowRankGrowthTest, VectorsThatServeGoOn) {
  MakeKeysFlat(0, kTokensMax, 3);
  AppendTo(chat_, 500);
  MakeArena();
  SeededRandom random(1);
  const ShadowSpec spec = OfRank(3);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, Growing(spec)));
  extended_ = true;
  for (const uint64_t tokens : {501u, 700u, 1100u, 1130u, 5226u, 6000u}) {
    SCOPED_TRACE(tokens);
    AppendTo(chat_, tokens);
    ASSERT_OK(session.Extend());
    EXPECT_FALSE(CameFromATable(session));
    EXPECT_EQ(tokens, session.info().tokens);
    ExpectSame(session, spec);
    StepAndCompare(session, spec, tokens, 448, &random);
    // The one that the fresh session made.
    if (tokens > 543) {
      ASSERT_OK(DropShadow(chat_, {.spec = spec}));
    }
  }
  EXPECT_FAILS(session.Extend(5999), StatusCode::kConflict, "");
}

// One that somebody made meanwhile is taken over, as by a session opened now; the vectors that the
// session has would serve as well.
TEST_F(ShadowLowRankGrowthTest, ALongerTableIsTakenOver) {
  MakeKeysFlat(0, kTokensMax, 3);
  AppendTo(chat_, 1500);
  MakeArena();
  SeededRandom random(2);
  const ShadowSpec spec = OfRank(3);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, Growing(spec)));
  ASSERT_OK(DropShadow(chat_, {.spec = spec}));  // So that the other's are of all keys.
  AppendTo(chat_, 5000);
  ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  AppendTo(chat_, 5100);
  ASSERT_OK(session.Extend());
  EXPECT_TRUE(CameFromATable(session));
  ExpectSame(session, spec);
  StepAndCompare(session, spec, 5100, 4928, &random);
}

// Step by step into other directions: the rule is that of a table made at once.
TEST_F(ShadowLowRankGrowthTest, VectorsThatDoNotServeAreFoundAnew) {
  MakeKeysFlat(0, 2600, 3);
  MakeKeysFlat(2600, kTokensMax, 1001);
  AppendTo(chat_, 1500);
  MakeArena();
  const ShadowSpec spec = OfRank(3);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, Growing(spec)));
  int anew = 0;
  for (uint64_t tokens = 1600; tokens <= 4000; tokens += 200) {
    SCOPED_TRACE(tokens);
    AppendTo(chat_, tokens);
    ASSERT_OK(session.Extend());
    const bool came = CameFromATable(session);
    if (came) {
      ++anew;
      EXPECT_GT(tokens, 2600u);
      EXPECT_EQ(session.info().covered, session.info().tokens_read);
    }
    ExpectSame(session, spec);
    if (!came) {
      ASSERT_OK(DropShadow(chat_, {.spec = spec}));
    }
  }
  EXPECT_GT(anew, 0);
  EXPECT_LT(anew, 7);
}

TEST_F(ShadowLowRankGrowthTest, WithoutRoomForOthersItIsAsItWas) {
  MakeKeysFlat(0, 1500, 3);
  AppendTo(chat_, 1500);
  MakeArena();
  SeededRandom random(3);
  ShadowSpec spec = Small(ShadowKeys::kLowRank);
  spec.rank_energy = 0.95;
  ShadowOptions options = Growing(spec);
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  StepAndCompare(session, spec, 1500, 1408, &random);
  AppendTo(chat_, 4000);  // The new keys point in all directions.
  for (int i = 0; i < 2; ++i) {
    EXPECT_FAILS(session.Extend(), StatusCode::kInvalidState, "open another session");
    EXPECT_OK(session.View(kLayers - 1));
    EXPECT_EQ(1500u, session.info().tokens);
    StepAndCompare(session, spec, 1500, 1408, &random);
  }
  ASSERT_OK_ASSIGN(ShadowSession other, ShadowSession::Open(arena_, chat_, options));
  EXPECT_EQ(0u, other.info().tokens_read);
  StepAndCompare(other, spec, 4000, 3968, &random);
}

TEST_F(ShadowLowRankGrowthTest, WithoutATableAndNotToMakeOneItIsAsItWas) {
  MakeKeysFlat(0, 1500, 3);
  MakeKeysFlat(1500, kTokensMax, 1001);
  AppendTo(chat_, 1500);
  MakeArena();
  SeededRandom random(4);
  const ShadowSpec spec = OfRank(3);
  ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  ShadowOptions options = Growing(spec);
  options.build = false;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
  AppendTo(chat_, 5000);
  EXPECT_FAILS(session.Extend(), StatusCode::kNotFound, "");
  StepAndCompare(session, spec, 1500, 1408, &random);
  ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  ASSERT_OK(session.Extend());
  StepAndCompare(session, spec, 5000, 4928, &random);
}

TEST_F(ShadowLowRankGrowthTest, AShortContextGetsVectorsWhenItIsLonger) {
  AppendTo(chat_, 60);
  MakeArena();
  SeededRandom random(5);
  ShadowSpec spec = OfRank(6);
  spec.budget_tokens = 0;
  ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, Growing(spec)));
  AppendTo(chat_, 90);
  ASSERT_OK(session.Extend());
  EXPECT_EQ(0u, session.info().covered);
  AppendTo(chat_, 1200);
  ASSERT_OK(session.Extend());
  ExpectSame(session, spec);
  StepAndCompare(session, spec, 1200, 1152, &random);
}

// Whatever call of the device fails: no step comes before an Extend that succeeds, and that is as
// if nothing had failed. By turns the vectors go on and do not.
TEST_F(ShadowLowRankGrowthTest, AnExtendThatFailsIsSaidAndTriedAgain) {
  Start({.seed = 5, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
  Find();
  MakeKeysFlat(0, 1800, 3);
  MakeKeysFlat(1800, kTokensMax, 1001);
  AppendTo(chat_, 1500);
  MakeArena();
  const ShadowSpec spec = OfRank(3);
  int failures = 0, renewed = 0;
  for (uint64_t fails_at = 0; fails_at < 40; ++fails_at) {
    SCOPED_TRACE(fails_at);
    ShadowOptions options = Growing(spec);
    options.end = 1500;
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, options));
    const uint64_t tokens = fails_at % 2 == 0 ? 1700 : 4000;
    ASSERT_OK_ASSIGN(const uint64_t length, chat_.length());
    if (length > tokens) {
      ASSERT_OK(chat_.Rewind(1500));
    }
    AppendTo(chat_, tokens);
    device_->FailAt(device_->calls() + fails_at);
    const Status failed = session.Extend();
    device_->FailAt(UINT64_MAX);
    if (!failed.ok()) {
      ++failures;
      EXPECT_FAILS(session.Select({.layer = 0, .queries = queries_, .stream = stream()}),
                   StatusCode::kInvalidState, "call it again");
      ASSERT_OK(session.Extend());
    }
    renewed += CameFromATable(session);
    ExpectSame(session, spec, 2);
    static_cast<void>(DropShadow(chat_, {.spec = spec}));
  }
  EXPECT_GT(failures, 15);
  EXPECT_GT(renewed, 10);
}

// After a failed Extend the branch may be rewound, and have other keys where it had read.
TEST_F(ShadowLowRankGrowthTest, AfterAFailureTheBranchMayHaveOtherKeys) {
  Start({.seed = 6, .fail_kinds = gpu::kFailAny, .fail_at = UINT64_MAX});
  Find();
  MakeArena();
  const ShadowSpec spec = OfRank(3);
  int failures = 0;
  for (uint64_t fails_at = 1; fails_at < 40; fails_at += 2) {
    SCOPED_TRACE(fails_at);
    MakeKeysFlat(0, 1800, 3);
    MakeKeysFlat(1800, 4000, 1001);
    ASSERT_OK_ASSIGN(const BranchInfo info, chat_.Info());
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(info.model));
    AppendTo(chat_, 1500);
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, Growing(spec)));
    AppendTo(chat_, 4000);
    device_->FailAt(device_->calls() + fails_at);
    const Status failed = session.Extend();
    device_->FailAt(UINT64_MAX);
    if (failed.ok()) continue;
    ++failures;
    ASSERT_OK(chat_.Rewind(1500));
    MakeKeysFlat(1500, 3000, 3);
    const uint64_t tokens = fails_at % 4 == 1 ? 1501 : 3000;
    AppendTo(chat_, tokens);
    ASSERT_OK(session.Extend());
    if (tokens != 3000) {
      AppendTo(chat_, 3000);
      ASSERT_OK(session.Extend());
    }
    ExpectSame(session, spec, 2);
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace cairn::testing
