// SPDX-License-Identifier: Apache-2.0
//
// Property: what several state machines change in one transaction takes effect together or not at
// all. Method: the tree and a list of numbers.
#include "engine/tree/ops/transaction.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/tree/ops/decisions.h"
#include "engine/tree/ops/tree_changes.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::engine {
namespace {

class Numbers final : public Transaction::Participant {
 public:
  Numbers(std::vector<int>* values, Transaction* transaction)
      : Participant(transaction), values_(values), transaction_(transaction) {}

  void Add(int value) {
    transaction_->ReserveUndo(1);
    values_->push_back(value);
    transaction_->PushUndo([values = values_, value] {
      ASSERT_EQ(value, values->back());
      values->pop_back();
    });
  }

  uint64_t segment_ = 0;
  int rollbacks_ = 0;

 private:
  void OnCommit(const wal::Location& location, uint32_t /*token_prefix_bytes*/) override {
    segment_ = location.segment;
  }
  void OnRollback() override { ++rollbacks_; }

  std::vector<int>* const values_;
  Transaction* const transaction_;
};

class TransactionTest : public ::testing::Test {
 protected:
  const wal::Location at_{.segment = 3, .epoch = 1, .offset = 4096, .bytes = 100};
  Tree tree_;
  std::vector<int> values_;
  Transaction transaction_;
};

TEST_F(TransactionTest, IsOfAllThatTakePart) {
  TreeChanges changes(&tree_, &transaction_);
  Numbers numbers(&values_, &transaction_);
  ASSERT_OK_ASSIGN(const Op model, ResolveModel(tree_, testing::TinyModel()));
  for (int times = 0; times < 2; ++times) {
    numbers.Add(1);
    ASSERT_OK(changes.Apply(model));
    numbers.Add(2);
    EXPECT_EQ(1U, tree_.models().size());
    transaction_.Rollback();
    EXPECT_TRUE(tree_.models().empty());
    EXPECT_TRUE(values_.empty());
    EXPECT_EQ(times + 1, numbers.rollbacks_);
  }
  numbers.Add(1);
  ASSERT_OK(changes.Apply(model));
  transaction_.Commit(at_, 50);
  transaction_.Rollback();  // A rollback of nothing.
  EXPECT_EQ(2, numbers.rollbacks_);
  EXPECT_EQ(3U, numbers.segment_);
  EXPECT_EQ(1U, tree_.models().size());
  EXPECT_EQ(std::vector<int>{1}, values_);
}

TEST_F(TransactionTest, IsUndoneWhenOneOfThemEnds) {
  TreeChanges changes(&tree_, &transaction_);
  ASSERT_OK_ASSIGN(const Op model, ResolveModel(tree_, testing::TinyModel()));
  {
    Numbers numbers(&values_, &transaction_);
    numbers.Add(1);
    ASSERT_OK(changes.Apply(model));
  }
  EXPECT_TRUE(tree_.models().empty());
  EXPECT_TRUE(values_.empty());
  ASSERT_OK(changes.Apply(model));  // The others go on.
  transaction_.Commit(at_, 50);
  EXPECT_EQ(1U, tree_.models().size());
}

}  // namespace
}  // namespace cairn::engine
