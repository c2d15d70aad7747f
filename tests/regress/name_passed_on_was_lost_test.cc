// SPDX-License-Identifier: Apache-2.0
//
// The bug: a branch got the name of one that was dropped after the first had changed; the index,
// which got both changes together, deleted the name last, and the branch was gone. Method: that,
// and the same with two branches that swap their names.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

class NamePassedOnWasLost : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = world_->options();
    options_.tree_memory_bytes = 0;
    ASSERT_OK_ASSIGN(store_, world_->Open(options_));
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(first_, store_.CreateBranch(model, {.name = "first"}));
    ASSERT_OK_ASSIGN(second_, store_.CreateBranch(model, {.name = "second"}));
    ASSERT_OK(store_.Compact());
  }

  void ExpectNamed(const std::string& name, const Branch& branch) {
    ASSERT_OK_ASSIGN(const Branch found, store_.FindBranch(name));
    EXPECT_EQ(branch.id(), found.id());
  }

  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("simulated");
  Options options_;
  Store store_;
  Branch first_, second_;
};

TEST_F(NamePassedOnWasLost, ByADrop) {
  ASSERT_OK(
      second_.AppendSync({.tokens = Tokens(1)}));  // So that it comes first in the tree flush.
  ASSERT_OK(first_.Drop());
  ASSERT_OK(second_.Rename("first"));
  ASSERT_OK(store_.Compact());
  ExpectNamed("first", second_);
  ASSERT_OK(store_.Close());
  ASSERT_OK_ASSIGN(store_, world_->Open(options_));
  ExpectNamed("first", second_);
  EXPECT_FAILS(store_.FindBranch("second"), StatusCode::kNotFound);
  EXPECT_EQ(1u, *store_.FindBranch("first")->length());
}

TEST_F(NamePassedOnWasLost, ByASwap) {
  ASSERT_OK(first_.Rename("third"));
  ASSERT_OK(second_.Rename("first"));
  ASSERT_OK(first_.Rename("second"));
  ASSERT_OK(store_.Compact());
  ASSERT_OK(store_.Close());
  ASSERT_OK_ASSIGN(store_, world_->Open(options_));
  ExpectNamed("first", second_);
  ExpectNamed("second", first_);
  EXPECT_FAILS(store_.FindBranch("third"), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn::testing
