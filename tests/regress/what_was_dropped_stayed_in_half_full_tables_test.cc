// SPDX-License-Identifier: Apache-2.0
//
// The bug: a table was rewritten when half of it was dead, and looked at when the log had got
// another segment. So sessions that ended left up to the size of all live ones, for good where
// nobody wrote any more, and Compact left it as well. Method: of tables that many branches share,
// some branches go.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr int kBranches = 10;
constexpr uint64_t kTokens = 256;  // 2 MiB.

class WhatWasDroppedStayed : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_ASSIGN(store_, world_->Open());
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    for (int i = 0; i < kBranches; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(id, {.name = std::to_string(i)}));
      ASSERT_OK(AppendSome(branch, model_, 0, kTokens));
      branches_.push_back(branch);
    }
    ASSERT_OK(store_.Compact());
    ASSERT_GT(1.1, FilesToLive());
  }
  double FilesToLive() const {
    const StoreMetrics metrics = store_.Metrics();
    return static_cast<double>(metrics.table_bytes) / static_cast<double>(metrics.table_live_bytes);
  }
  void CheckLeft(size_t first) {
    for (size_t i = first; i < branches_.size(); ++i) {
      EXPECT_TRUE(HasKv(branches_[i], model_, 0, kTokens));
    }
    EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
  }

  const ModelSpec model_ = WideModel();
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("memory");
  Store store_;
  std::vector<Branch> branches_;
};

TEST_F(WhatWasDroppedStayed, ItComesBackWhileNobodyWrites) {
  for (size_t i = 0; i < 4; ++i) ASSERT_OK(branches_[i].Drop());
  for (int i = 0; i < 1000 && FilesToLive() > 1.2; ++i) {
    world_->world().scheduler->Sleep(10'000'000);
  }
  EXPECT_GT(1.2, FilesToLive());
  CheckLeft(4);
}

TEST_F(WhatWasDroppedStayed, CompactLeavesATenthAtMost) {
  ASSERT_OK(store_.PauseBackground());
  for (size_t i = 0; i < 2; ++i) ASSERT_OK(branches_[i].Drop());
  EXPECT_LT(1.2, FilesToLive());
  ASSERT_OK(store_.ResumeBackground());
  ASSERT_OK(store_.Compact());
  EXPECT_GT(1.15, FilesToLive());
  CheckLeft(2);
}

}  // namespace
}  // namespace cairn::testing
