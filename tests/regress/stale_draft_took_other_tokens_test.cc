// SPDX-License-Identifier: Apache-2.0
//
// The bug: a draft was committed although its branch had got other tokens since BeginAppend, and
// its KV was served for those. Method: an append, and a rewind with as many other tokens, between
// Put and Commit.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

class StaleDraftTookOtherTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_ASSIGN(store_, world_->Open());
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(model));
    KvSet kv(spec_, Layout::kContiguous, 0, 3);
    ASSERT_OK(chat_.AppendSync({.tokens = Tokens(3), .kv = kv.View(0, 3)}));
    ASSERT_OK_ASSIGN(draft_, chat_.BeginAppend(2));
    KvSet staged(spec_, Layout::kContiguous, 3, 2);
    for (uint32_t layer = 0; layer < spec_.groups[0].layers; ++layer) {
      ASSERT_OK(draft_.Put(layer, staged.pool(0).View(3, 2, layer, 1)));
    }
  }

  const ModelSpec spec_ = TinyModel();
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("simulated");
  Store store_;
  Branch chat_;
  Draft draft_;
};

TEST_F(StaleDraftTookOtherTokens, AfterAnAppend) {
  ASSERT_OK(chat_.AppendSync({.tokens = Tokens(1)}));
  EXPECT_FAILS(draft_.Commit({.tokens = Tokens(2)}, {}), StatusCode::kConflict, "BeginAppend");
  EXPECT_EQ(4u, *chat_.length());
  EXPECT_EQ(3u, chat_.Info()->kv_lengths[0]);
}

TEST_F(StaleDraftTookOtherTokens, AfterARewindAndAsManyOthers) {
  ASSERT_OK(chat_.Rewind(1));
  KvSet kv(spec_, Layout::kContiguous, 1, 2);
  ASSERT_OK(chat_.AppendSync({.tokens = Tokens(2, 77), .kv = kv.View(1, 2)}));
  ASSERT_EQ(3u, *chat_.length());
  EXPECT_FAILS(draft_.Commit({.tokens = Tokens(2)}, {}), StatusCode::kConflict, "BeginAppend");
  EXPECT_EQ(3u, *chat_.length());
}

TEST_F(StaleDraftTookOtherTokens, AndAFailedCommitMayBeTriedAgain) {
  AppendOptions wrong;
  wrong.expected_length = 9;
  EXPECT_FAILS(draft_.Commit({.tokens = Tokens(2)}, wrong), StatusCode::kConflict, "has 3");
  ASSERT_OK(draft_.Commit({.tokens = Tokens(2)}, {}));
  EXPECT_EQ(5u, chat_.Info()->kv_lengths[0]);
}

TEST_F(StaleDraftTookOtherTokens, AndADraftThatNoMemoryCanHoldIsRefused) {
  for (const uint64_t positions : {uint64_t{1} << 58, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT_FAILS(chat_.BeginAppend(positions), StatusCode::kInvalidArgument, "positions");
  }
}

}  // namespace
}  // namespace cairn::testing
