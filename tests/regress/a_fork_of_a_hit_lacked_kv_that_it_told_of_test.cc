// SPDX-License-Identifier: Apache-2.0
//
// KV may lag behind its tokens, and a fork may bring what its source has not. A hit that ended on
// such a fork reported the fork's KV, also where a fork of the hit ends on the source, or where the
// hit itself names the source: then less existed than it had said.
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class AHitOfLaggingKv : public FindTest {
 protected:
  // The KV ends one before the tokens.
  Branch MakeLagging(std::span<const TokenId> ids, const std::string& ns = "") {
    Branch branch = Make("source", ids.first(ids.size() - 1), ns);
    EXPECT_OK(branch.AppendSync({.tokens = ids.last(1)}));
    return branch;
  }
  KvSet KvOf(uint64_t begin, uint64_t end) {
    KvSet kv(spec_, Layout::kContiguous, begin, end - begin);
    kv.Write(kSeed, begin, end);
    return kv;
  }
  void ExpectThatItHolds(const PrefixHit& hit, uint64_t restorable) {
    ASSERT_EQ(restorable, hit.restorable);
    KvSet got(spec_, Layout::kContiguous, 0, restorable);
    RestoreRequest request;
    request.end = restorable;
    request.into = got.View(0, restorable);
    EXPECT_OK(store_.Restore(hit, request));
    EXPECT_TRUE(got == KvOf(0, restorable)) << "other KV";
    ASSERT_OK_ASSIGN(Branch fork, store_.Fork(hit, hit.restorable));
    ASSERT_OK_ASSIGN(const uint64_t has, fork.RestorableLength());
    EXPECT_EQ(hit.restorable, has);
    EXPECT_OK(fork.Drop());
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, AHitOfLaggingKv, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(AHitOfLaggingKv, WhereTheForkGoesOn) {
  const std::vector<TokenId> ids = Tokens(200, 5);
  const Branch source = MakeLagging(std::span(ids).first(150));
  ASSERT_OK_ASSIGN(Branch fork, source.ForkAt(150, {}));
  KvSet kv = KvOf(149, 150);
  ASSERT_OK(fork.AppendSync(MakeDelta(std::span(ids).subspan(150, 1), kv.View(149, 1))));
  const PrefixHit hit = Ask(ids);
  EXPECT_EQ(151u, hit.matched);
  ExpectThatItHolds(hit, 149);  // It can be forked at 150 of the source alone, which has 149.
  kv = KvOf(150, 151);
  ASSERT_OK(fork.Fill(*kv.View(150, 1)));
  ExpectThatItHolds(Ask(ids), 151);
}

TEST_P(AHitOfLaggingKv, WhereTheForkHasNothingButKv) {
  const std::vector<TokenId> ids = Tokens(192, 5);
  const Branch source = MakeLagging(ids, "theirs");
  ASSERT_OK_ASSIGN(Branch fork, source.ForkAt(192, {.name = "fork", .ns = "ours"}));
  PrefixQuery query = Query(ids);
  query.ns = "ours";
  EXPECT_FALSE(Ask(query).found());
  KvSet kv = KvOf(191, 192);
  ASSERT_OK(fork.Fill(*kv.View(191, 1)));
  const PrefixHit hit = Ask(query);
  EXPECT_EQ(192u, hit.matched);
  ExpectThatItHolds(hit, 191);
}

}  // namespace
}  // namespace cairn::testing
