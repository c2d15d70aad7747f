// SPDX-License-Identifier: Apache-2.0
//
// Property: elastic caches together never hold more than others leave; each is sure of its share,
// by weight, and may have what the rest does not use.
#include "base/core/memory_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn {
namespace {

class TestCache final : public MemoryBudget::Cache {
 public:
  TestCache(MemoryBudget* budget, uint64_t weight) : budget_(budget), weight_(weight) {
    budget_->AddCache(this);
  }
  ~TestCache() override { budget_->RemoveCache(this); }
  uint64_t bytes() const override { return bytes_; }
  uint64_t weight() const override { return weight_; }
  void Shrink() override { bytes_ = std::min(bytes_, budget_->left(this)); }
  void GrowTo(uint64_t bytes) {
    bytes_ = std::max(bytes_, std::min(bytes, budget_->left(this)));
    budget_->Grew(this);
  }

 private:
  MemoryBudget* const budget_;
  const uint64_t weight_;
  uint64_t bytes_ = 0;
};

TEST(MemoryBudgetTest, OneCacheHasAllThatIsLeft) {
  MemoryBudget budget(1000);
  TestCache cache(&budget, 3);
  EXPECT_EQ(budget.left(&cache), 1000u);
  cache.GrowTo(UINT64_MAX);
  EXPECT_EQ(cache.bytes(), 1000u);
  budget.Take(300);
  EXPECT_EQ(cache.bytes(), 700u);
  budget.Take(800);
  EXPECT_EQ(cache.bytes(), 0u);
  budget.Return(1100);
}

TEST(MemoryBudgetTest, ACacheHasWhatTheOtherDoesNotUse) {
  MemoryBudget budget(1000);
  TestCache large(&budget, 3), small(&budget, 1);
  large.GrowTo(UINT64_MAX);
  EXPECT_EQ(large.bytes(), 1000u);
  // The other one wants its share, and gets it.
  small.GrowTo(100);
  EXPECT_EQ(small.bytes(), 100u);
  EXPECT_EQ(large.bytes(), 900u);
  small.GrowTo(UINT64_MAX);
  EXPECT_EQ(small.bytes(), 250u);
  EXPECT_EQ(large.bytes(), 750u);
  // It is not sure of more.
  small.GrowTo(300);
  EXPECT_EQ(small.bytes(), 250u);
}

TEST(MemoryBudgetTest, BothGiveWhatOthersTake) {
  MemoryBudget budget(1000);
  TestCache one(&budget, 1), other(&budget, 1);
  one.GrowTo(800);
  other.GrowTo(200);
  budget.Take(400);  // Only the one that has more than its share gives.
  EXPECT_EQ(one.bytes(), 400u);
  EXPECT_EQ(other.bytes(), 200u);
  budget.Take(400);
  EXPECT_EQ(one.bytes(), 100u);
  EXPECT_EQ(other.bytes(), 100u);
  budget.Return(800);
}

TEST(MemoryBudgetTest, ACacheThatWentLeavesItsShare) {
  MemoryBudget budget(1000);
  TestCache one(&budget, 1);
  {
    TestCache other(&budget, 1);
    other.GrowTo(UINT64_MAX);
    one.GrowTo(UINT64_MAX);
    EXPECT_EQ(one.bytes(), 500u);
    EXPECT_EQ(other.bytes(), 500u);
  }
  one.GrowTo(UINT64_MAX);
  EXPECT_EQ(one.bytes(), 1000u);
}

TEST(MemoryBudgetTest, OneTooManyEndsTheProcess) {
  MemoryBudget budget(1000);
  TestCache one(&budget, 1), two(&budget, 1), three(&budget, 1), four(&budget, 1);
  EXPECT_DEATH(TestCache(&budget, 1), "memory_budget");
}

}  // namespace
}  // namespace cairn
