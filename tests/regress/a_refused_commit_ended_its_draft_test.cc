// SPDX-License-Identifier: Apache-2.0
//
// The bug: a commit that was refused for want of room counted as a change of its branch, so trying
// it again was a conflict, and so was the commit of a draft beside any append that was refused.
// Method: a namespace whose cap is lifted between the two.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

class ARefusedCommitEndedItsDraft : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_ASSIGN(store_, world_->Open());
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(spec_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(model, {.ns = "full"}));
    ASSERT_OK_ASSIGN(draft_, chat_.BeginAppend(2));
    KvSet staged(spec_, Layout::kContiguous, 0, 2);
    for (uint32_t layer = 0; layer < spec_.groups[0].layers; ++layer) {
      ASSERT_OK(draft_.Put(layer, staged.pool(0).View(0, 2, layer, 1)));
    }
    ASSERT_OK(store_.SetNamespace("full", {.max_bytes = 1}));
  }
  void CommitWithRoom() {
    ASSERT_OK(store_.SetNamespace("full", {}));
    ASSERT_OK(draft_.Commit({.tokens = Tokens(2)}, {}));
    EXPECT_EQ(2u, chat_.Info()->kv_lengths[0]);
  }

  const ModelSpec spec_ = TinyModel();
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("simulated");
  Store store_;
  Branch chat_;
  Draft draft_;
};

TEST_F(ARefusedCommitEndedItsDraft, ItMayBeTriedAgain) {
  EXPECT_FAILS(draft_.Commit({.tokens = Tokens(2)}, {}), StatusCode::kNoSpace);
  CommitWithRoom();
}

TEST_F(ARefusedCommitEndedItsDraft, ARefusedAppendIsNoChange) {
  EXPECT_FAILS(chat_.AppendSync({.tokens = Tokens(1)}), StatusCode::kNoSpace);
  CommitWithRoom();
}

}  // namespace
}  // namespace cairn::testing
