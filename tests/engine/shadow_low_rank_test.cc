// SPDX-License-Identifier: Apache-2.0
//
// Property: keys that are low-rank come back as base/shadow makes them of the stored vectors, at
// their positions; a longer context keeps the vectors as long as they serve it.
#include "tests/engine/shadow_low_rank_test.h"

namespace cairn::testing {
namespace {

TEST_F(ShadowLowRankTest, KeysAreThoseOfTheVectors) {
  AppendTo(chat_, 1500);
  MakeArena();
  SeededRandom random(1);
  for (const bool by_energy : {false, true}) {
    ShadowSpec spec = Small(ShadowKeys::kLowRank, by_energy ? 8 : 4, 16);
    if (by_energy) {
      spec.rank_energy = 0.8;
    } else {
      spec.rank = 5;
    }
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
    EXPECT_EQ(1408u, session.info().tokens_read);
    StepAndCompare(session, spec, 1500, 1408, &random);
    EXPECT_FAILS(session.Extend(1501), StatusCode::kInvalidArgument, "");
  }
}

TEST_F(ShadowLowRankTest, ALongerContextKeepsVectorsThatServeIt) {
  MakeKeysFlat(0, 3000, 3);
  MakeArena();
  SeededRandom random(2);
  ShadowSpec spec = Small(ShadowKeys::kLowRank);
  spec.rank = 3;
  AppendTo(chat_, 1500);
  ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  AppendTo(chat_, 2600);
  ASSERT_OK_ASSIGN(ShadowSession longer, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
  EXPECT_EQ(2560u - 1024, longer.info().tokens_read);
  StepAndCompare(longer, spec, 2600, 1408, &random);
  // Keys of other directions: the vectors are found again.
  MakeKeysFlat(2600, 6000, 1001);
  AppendTo(chat_, 5000);
  ASSERT_OK_ASSIGN(ShadowSession anew, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
  EXPECT_EQ(4928u, anew.info().tokens_read);
  StepAndCompare(anew, spec, 5000, 4928, &random);
}

// Where the rank is not given, a session needs the vectors' sizes before it has room for them.
TEST_F(ShadowLowRankTest, ATableWithoutVectorsIsMadeAgain) {
  AppendTo(chat_, 1500);
  MakeArena();
  ShadowSpec spec = Small(ShadowKeys::kLowRank, 8, 16);
  spec.rank_energy = 0.8;
  ASSERT_OK(BuildShadow(chat_, {.spec = spec}));
  std::string table;
  for (const std::string& file : sim_.disk->Files()) {
    if (file.ends_with(".snapshot")) table = file;
  }
  ASSERT_NE("", table);
  ASSERT_OK_ASSIGN(const io::FileInfo info, sim_.disk->Info(table));
  SeededRandom random(3);
  bool made_again = false;
  for (int i = 0; i < 40 && !made_again; ++i) {
    SCOPED_TRACE(i);
    // From the end: there the sizes of frames are.
    ASSERT_OK(sim_.disk->FlipBit(table, info.bytes - 1 - random.Below(info.bytes / 8),
                                 static_cast<unsigned>(random.Below(8))));
    ASSERT_OK_ASSIGN(ShadowSession session, ShadowSession::Open(arena_, chat_, OptionsOf(spec)));
    StepAndCompare(session, spec, 1500, 1408, &random);
    made_again = session.info().tokens_read != 0;
  }
  EXPECT_TRUE(made_again);
}

TEST_F(ShadowLowRankTest, WhatIsWrongIsSaid) {
  AppendTo(chat_, 500);
  MakeArena();
  ShadowOptions options = OptionsOf(Small(ShadowKeys::kLowRank));
  EXPECT_FAILS(ShadowSession::Open(arena_, chat_, options), StatusCode::kInvalidArgument, "rank");
  options.spec.rank = 33;
  EXPECT_FAILS(ShadowSession::Open(arena_, chat_, options), StatusCode::kInvalidArgument,
               "rank is 33");
}

}  // namespace
}  // namespace cairn::testing
