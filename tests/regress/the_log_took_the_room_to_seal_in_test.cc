// SPDX-License-Identifier: Apache-2.0
//
// The bug: a full store whose last log segment was opened by drops stayed full for ever. The log
// made its next segment out of the reserve at once, and what was left of that was too little to
// seal the oldest segment in; so nothing could be given back, nor dropped, also after an opening.
// Method: a store full to some blocks, all of it alive and of a kind that no codec packs, and drops
// beside a paused background until they are refused.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class TheLogTookTheRoomToSealIn : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = world_->options();
    options_.max_bytes = 4 << 20;
    ASSERT_OK_ASSIGN(store_, world_->Open(options_));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    for (int i = 0; i < 300; ++i) {  // More than fit what is kept for drops.
      ASSERT_OK_ASSIGN(const Branch one, store_.CreateBranch(id_, {}));
      empty_.push_back(one);
    }
    // First tables, until there is no room for a small one, then the log.
    for (Branch& one : full_) {
      ASSERT_OK_ASSIGN(one, store_.CreateBranch(id_, {}));
    }
    for (const uint64_t count : {32, 8, 2}) AppendAll(&full_[0], count);
    AppendAll(&full_[1], 1);
    ASSERT_OK(store_.PauseBackground());
    Status dropped;
    while (dropped.ok() && !empty_.empty()) dropped = DropOne();
    EXPECT_EQ(StatusCode::kNoSpace, dropped.code());
    for (int i = 0; i < 20; ++i) Sleep();  // The log makes what it can.
  }
  void AppendAll(Branch* branch, uint64_t count) {
    for (int refused = 0; refused < 20;) {
      const uint64_t length = *branch->length();
      const Status added =
          AppendSome(*branch, model_, length, count, kSeed, Durability::kMemory).status();
      refused = added.ok() ? 0 : refused + 1;
      if (added.ok()) continue;
      ASSERT_EQ(StatusCode::kNoSpace, added.code()) << added.ToString();
      Sleep();
    }
  }
  Status DropOne() {
    const Status status = empty_.back().Drop(Durability::kPower);
    if (status.ok()) empty_.pop_back();
    return status;
  }
  void Sleep() { world_->world().scheduler->Sleep(10'000'000); }
  void CheckItGoesOn() {
    for (int refused = 0; refused < 100 && !empty_.empty();) {
      if (DropOne().ok()) continue;
      ++refused;
      Sleep();
    }
    EXPECT_TRUE(empty_.empty());
    EXPECT_OK(store_.Compact());
    for (const Branch& one : full_) EXPECT_TRUE(HasKv(one, model_, 0, *one.length()));
    EXPECT_LE(store_.Metrics().physical_bytes, options_.max_bytes);
    for (Branch& one : full_) EXPECT_OK(one.Drop());
    EXPECT_OK(store_.Compact());
    Result<Branch> one = store_.CreateBranch(id_, {});
    for (int refused = 0; refused < 100 && !one.ok(); ++refused) {
      Sleep();
      one = store_.CreateBranch(id_, {});
    }
    ASSERT_OK(one);
    EXPECT_OK(AppendSome(*one, model_, 0, 32));
  }

  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("simulated");
  const ModelSpec model_ = WideModel();
  Options options_;
  Store store_;
  ModelId id_{};
  std::vector<Branch> empty_, full_{2};
};

TEST_F(TheLogTookTheRoomToSealIn, WhenDropsOpenedItsLastSegment) {
  ASSERT_OK(store_.ResumeBackground());
  CheckItGoesOn();
}

TEST_F(TheLogTookTheRoomToSealIn, AlsoAfterAnOpening) {
  ASSERT_OK(store_.Close());
  store_ = Store();
  ASSERT_OK_ASSIGN(store_, world_->Open(options_));
  for (std::vector<Branch>* const all : {&empty_, &full_}) {
    for (Branch& one : *all) one = Branch(store_.core(), one.id());
  }
  CheckItGoesOn();
}

}  // namespace
}  // namespace cairn::testing
