// SPDX-License-Identifier: Apache-2.0
//
// A tree with little memory forgets a node as soon as nobody looks at it. A search that had found a
// block of 64 on it then did not go on behind the block: it answered with fewer tokens than there
// are, and with those of another branch where that had the block as well.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class ASearchOfASmallTree : public FindTest {};

INSTANTIATE_TEST_SUITE_P(Worlds, ASearchOfASmallTree, ::testing::Values("memory", "simulated"),
                         NameOf);

TEST_P(ASearchOfASmallTree, GoesOnToTheToken) {
  Options options = FindingOptions();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 40;
  WorldTest::Reopen(options);
  model_ = Register(spec_);
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("chat", ids);
  for (int i = 0; i < 6; ++i) Make("other-" + std::to_string(i), Like(ids, 256 + i, 9, 20 + i));
  ASSERT_OK(store_.Compact());
  WorldTest::Reopen(options);
  const PrefixHit hit = AskUntilComplete(store_, model_, ids, *world_->world().scheduler);
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(300u, hit.restorable);
  ExpectForks(hit, ids, 300);
}

}  // namespace
}  // namespace cairn::testing
