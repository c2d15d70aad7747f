// SPDX-License-Identifier: Apache-2.0
//
// Property: what is gone costs no answer. Where thousands that held a prompt were dropped, the one
// that is left is found, however many are newer; and when a quarter of what was indexed is gone, a
// sweep deletes its entries and no others.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindSweepTest : public FindTest {
 protected:
  uint64_t DeadTokens() const { return store_.Metrics().hint_dead_tokens; }
  PrefixHit UntilComplete(std::span<const TokenId> ids) {
    return AskUntilComplete(store_, model_, ids, *world_->world().scheduler);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, FindSweepTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(FindSweepTest, ManyThatAreGoneHideNobody) {
  const std::vector<TokenId> ids = Tokens(256, 5);
  Make("oldest", ids);
  constexpr int kGone = 300;  // More than one look at the hints reads.
  for (int i = 0; i < kGone; ++i) {
    Branch chat = Make("", Like(ids, 200, 10, 1000 + static_cast<uint64_t>(i)));
    Ask(ids);  // It is indexed.
    ASSERT_OK(chat.Drop());
  }
  for (int again = 0; again < 2; ++again) {
    const PrefixHit hit = Ask(ids);
    EXPECT_EQ(256u, hit.matched);
    EXPECT_TRUE(hit.complete);
    ExpectForks(hit, ids, 256);
  }
}

TEST_P(FindSweepTest, WhenAQuarterIsGone) {
  const std::vector<TokenId> ids = Tokens(20'000, 5);
  ASSERT_OK_ASSIGN(Branch kept, store_.CreateBranch(model_, {.name = "kept"}));
  ASSERT_OK(kept.AppendSync(MakeDelta(ids)));
  const auto make = [&](uint64_t seed) {
    auto branch = store_.CreateBranch(model_, {});
    EXPECT_OK(branch);
    EXPECT_OK(branch->AppendSync(MakeDelta(Tokens(150'000, seed))));
    return *branch;
  };
  std::vector<Branch> gone;
  for (uint64_t i = 0; i < 8; ++i) gone.push_back(make(100 + i));
  UntilComplete(ids);
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0u, DeadTokens());
  for (Branch& branch : gone) ASSERT_OK(branch.Drop());
  ASSERT_OK(kept.Rewind(19'000));
  ASSERT_OK(kept.AppendSync(MakeDelta(std::span(ids).subspan(19'000))));
  ASSERT_OK(store_.Compact());
  for (int i = 0; i < 1000 && DeadTokens() != 0; ++i) {
    world_->world().scheduler->Sleep(1'000'000);
    if (i % 100 == 99) {
      ASSERT_OK(kept.AppendSync(MakeDelta(Tokens(1, static_cast<uint64_t>(i)))));
      ASSERT_OK(store_.Compact());
    }
  }
  EXPECT_LT(DeadTokens(), 1000u);
  EXPECT_EQ(20'000u, UntilComplete(ids).matched);
  ASSERT_OK(kept.AppendSync(MakeDelta(Tokens(1, 9))));
  ASSERT_OK(store_.Compact());  // Deletions are written.
  Reopen();
  EXPECT_EQ(20'000u, UntilComplete(ids).matched);
  EXPECT_LT(DeadTokens(), 1000u);
}

}  // namespace
}  // namespace cairn::testing
