// SPDX-License-Identifier: Apache-2.0
//
// Property: a copy of a store finds what the store finds, at once.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindCopyTest : public FindTest {};

TEST_P(FindCopyTest, FindsAtOnceWhatTheStoreFinds) {
  const std::vector<TokenId> ids = Tokens(300, 5), behind = Tokens(200, 6);
  Make("a", ids);
  ASSERT_OK(store_.Compact());
  Make("b", behind);
  const std::string path = world_->path() + "-copy";
  ASSERT_OK(store_.Checkpoint(path));
  ASSERT_OK(store_.Close());
  Options options = FindingOptions();
  options.world = world_->options().world;
  options.create_if_missing = false;
  ASSERT_OK_ASSIGN(store_, Store::Open(path, options));
  for (const std::vector<TokenId>& asked : {ids, behind}) {
    const PrefixHit hit = Ask(asked);
    EXPECT_EQ(hit.matched, asked.size());
    EXPECT_TRUE(hit.complete);
  }
  EXPECT_EQ(store_.Metrics().hints_incomplete, 0u) << "they were made anew";
}

INSTANTIATE_TEST_SUITE_P(Worlds, FindCopyTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

}  // namespace
}  // namespace cairn::testing
