// SPDX-License-Identifier: Apache-2.0
//
// The bug: a search looked only at nodes that agree with the prompt on the deepest block that any
// node has, so ids without KV hid the KV of another branch: a longer branch of ids alone, one whose
// KV was evicted, or twenty newer branches with the same ids.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class IdsHidKv : public FindTest {
 protected:
  Branch MakeIds(std::span<const TokenId> ids) {
    auto branch = store_.CreateBranch(model_);
    EXPECT_OK(branch);
    EXPECT_OK(branch->AppendSync(MakeDelta(ids)));
    return *branch;
  }
  void ExpectRestorable(uint64_t restorable, std::span<const TokenId> prompt,
                        bool hashes_are_true = true) {
    PrefixQuery query = Query(prompt);
    PrefixHit hit = Ask(query);
    EXPECT_EQ(restorable, hit.restorable);
    EXPECT_TRUE(hit.complete && hit.confirmed);
    KvSet got(spec_, Layout::kContiguous, 0, restorable);
    KvSet want(spec_, Layout::kContiguous, 0, restorable);
    want.Write(kSeed, 0, restorable);
    RestoreRequest request;
    request.end = restorable;
    request.into = got.View(0, restorable);
    request.require_kv = true;
    ASSERT_OK(store_.Restore(hit, request));
    EXPECT_TRUE(got == want);
    ExpectForks(hit, prompt, restorable);
    if (!hashes_are_true) return;
    query.confirm = false;
    hit = Ask(query);
    EXPECT_GE(hit.restorable, restorable / kPrefixBlock * kPrefixBlock) << "by hashes alone";
    ExpectForks(hit, prompt, hit.matched);
  }
  const std::vector<TokenId> ids_ = Tokens(1600, 5);
};

INSTANTIATE_TEST_SUITE_P(Worlds, IdsHidKv, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(IdsHidKv, OfALongerBranch) {
  Make("chat", std::span(ids_).first(1000));
  const Branch longer = MakeIds(std::span(ids_).first(1500));
  ExpectRestorable(1000, ids_);
  const PrefixHit hit = Ask(ids_);
  EXPECT_EQ(1000u, hit.matched);
  EXPECT_EQ(1500u, hit.longest.matched);
  ASSERT_OK_ASSIGN(const std::vector<PathStep> path, longer.Path());
  EXPECT_EQ(path.back().node, hit.longest.node);
  // Where both have KV they are one.
  EXPECT_EQ(900u, Ask(std::span(ids_).first(900)).longest.matched);
}

TEST_P(IdsHidKv, OfOneThatWasEvicted) {
  ASSERT_OK(store_.SetNamespace("", {.max_bytes = 400'000, .evict = Evict::kKv}));
  ASSERT_OK_ASSIGN(Branch kept, store_.CreateBranch(model_, {.keep = {.pinned = true}}));
  ASSERT_OK(Append(kept, std::span(ids_).first(1000)));
  Branch evicted = Make("evicted", std::span(ids_).first(1500));
  for (uint64_t i = 0; i < 20 && evicted.EvictedKv()->empty(); ++i) {
    Make("new-" + std::to_string(i), Tokens(700, 100 + i));
  }
  ASSERT_FALSE(evicted.EvictedKv()->empty());
  EXPECT_GE(Ask(ids_).restorable, 1000u);
}

TEST_P(IdsHidKv, OfManyNewerBranches) {
  Make("chat", std::span(ids_).first(640));
  std::vector<TokenId> prompt(ids_.begin(), ids_.begin() + 640);
  for (uint64_t i = 0; i < 20; ++i) {
    prompt.resize(640);
    prompt.push_back(static_cast<TokenId>(900'000 + i));
    ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(model_));
    // Some have a little KV.
    const uint64_t with_kv = i % 2 * 128;
    if (with_kv != 0) {
      ASSERT_OK(Append(other, std::span(prompt).first(with_kv)));
    }
    ASSERT_OK(other.AppendSync(MakeDelta(std::span(prompt).subspan(with_kv))));
  }
  ExpectRestorable(640, ids_);
}

// The KV lies on a node and on a child of it, and is found in two looks.
TEST_P(IdsHidKv, OfABranchAndItsFork) {
  Branch base = Make("base", std::span(ids_).first(500));
  ASSERT_OK_ASSIGN(Branch fork, base.ForkAt(450, {.name = "fork"}));
  ASSERT_OK(Append(fork, std::span(ids_).subspan(450, 550)));
  ASSERT_OK(Append(base, Tokens(300, 9)));
  MakeIds(std::span(ids_).first(1500));
  ExpectRestorable(1000, ids_);
}

// Its hints are from ids that were rewound, and of which no other branch has KV.
TEST_P(IdsHidKv, OfABranchThatWasRewound) {
  Branch chat = Make("chat", std::span(ids_).first(1000));
  EXPECT_EQ(1000u, Ask(ids_).restorable);
  ASSERT_OK(chat.Rewind(500));
  ASSERT_OK(Append(chat, Tokens(500, 9)));
  MakeIds(std::span(ids_).first(1500));
  ExpectRestorable(500, ids_, /*hashes_are_true=*/false);
}

TEST_P(IdsHidKv, AndStillDoWhereThereIsNone) {
  MakeIds(std::span(ids_).first(1500));
  const PrefixHit hit = Ask(ids_);
  EXPECT_EQ(1500u, hit.matched);
  EXPECT_EQ(0u, hit.restorable);
  EXPECT_EQ(hit.node, hit.longest.node);
  EXPECT_TRUE(hit.complete);
}

}  // namespace
}  // namespace cairn::testing
