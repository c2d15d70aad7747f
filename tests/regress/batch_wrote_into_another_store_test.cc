// SPDX-License-Identifier: Apache-2.0
//
// The bug: a batch kept the id of a branch and forgot whose it was, so given to another store it
// changed the branch that had the same id there.
// Method: two stores with a branch of the same id each.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(BatchWroteIntoAnotherStore, IsRefused) {
  Store stores[2];
  Branch branches[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_ASSIGN(stores[i], Store::Open(":memory:", {}));
    ASSERT_OK_ASSIGN(const ModelId model, stores[i].RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(branches[i], stores[i].CreateBranch(model));
  }
  ASSERT_EQ(branches[0].id(), branches[1].id());
  const std::vector<TokenId> tokens = Tokens(3);
  WriteBatch batch;
  batch.Append(branches[0], {.tokens = tokens});
  EXPECT_FAILS(stores[1].Write(batch), StatusCode::kInvalidArgument, "another store");
  ASSERT_OK(stores[0].Write(batch));
  ASSERT_OK_ASSIGN(const uint64_t written, branches[0].length());
  ASSERT_OK_ASSIGN(const uint64_t untouched, branches[1].length());
  EXPECT_EQ(3U, written);
  EXPECT_EQ(0U, untouched);

  WriteBatch nowhere;
  nowhere.Append(-1, {.tokens = tokens});
  EXPECT_FAILS(stores[0].Write(nowhere), StatusCode::kInvalidArgument, "-1");
}

}  // namespace
}  // namespace cairn::testing
