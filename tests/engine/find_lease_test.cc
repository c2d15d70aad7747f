// SPDX-License-Identifier: Apache-2.0
//
// Property: what a hit has on lease stays as it is until the lease is over or released: no rewind,
// append, trim, join, eviction or expiry changes it, while its owner goes on as if there were no
// lease. A drop of all that needs it wins. Leases end by themselves, are bounded, and no restart
// knows them.
#include "engine/config/constants.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindLeaseTest : public FindTest {
 protected:
  PrefixHit Lease(std::span<const TokenId> ids, uint64_t lease_ns = kMinute) {
    PrefixQuery query = Query(ids);
    query.lease_ns = lease_ns;
    return Ask(query);
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, FindLeaseTest, ::testing::Values("memory", "simulated"), NameOf);

TEST_P(FindLeaseTest, HoldsWhatIsRewound) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Lease(ids);
  ASSERT_NE(LeaseId{}, hit.lease);
  ASSERT_OK(chat.Rewind(100));
  const std::vector<TokenId> other = Like(ids, 100, 250, 6);
  ASSERT_OK(Append(chat, std::span(other).subspan(100)));
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(350u, Ask(other).matched);
  ExpectForks(hit, ids, 300);
  EXPECT_EQ(300u, Ask(ids).matched);
  ASSERT_OK(store_.Release(hit.lease));
  EXPECT_EQ(0u, store_.Metrics().leases);
  ASSERT_OK(Append(chat, Tokens(3, 9)));
  ASSERT_OK(store_.Compact());  // Now it is trimmed.
  EXPECT_EQ(100u, Ask(ids).matched);
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kNotFound);  // Joined with what is left of it.
}

// Two that were used before all others: one is on lease.
TEST_P(FindLeaseTest, HoldsKvAgainstEviction) {
  const std::vector<TokenId> ids = Tokens(1000, 5), others = Tokens(1000, 6);
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 300'000, .evict = Evict::kKv}));
  Make("held", ids, "small");
  Make("other", others, "small");
  PrefixQuery query = Query(ids);
  query.ns = "small";
  query.lease_ns = kMinute;
  const PrefixHit hit = Ask(query);
  ASSERT_NE(LeaseId{}, hit.lease);
  for (uint64_t i = 0; i < 8; ++i) Make("new-" + std::to_string(i), Tokens(1000, 100 + i), "small");
  KvSet got(spec_, Layout::kContiguous, 0, 1000), want(spec_, Layout::kContiguous, 0, 1000);
  want.Write(kSeed, 0, 1000);
  RestoreRequest request;
  request.into = got.View(0, 1000);
  request.require_kv = true;
  ASSERT_OK(store_.Restore(hit, request));
  EXPECT_TRUE(got == want);
  query.tokens = others;
  query.lease_ns = 0;
  const PrefixHit lost = Ask(query);
  EXPECT_EQ(1000u, lost.matched);
  EXPECT_LT(lost.restorable, 1000u);
  EXPECT_FAILS(store_.Restore(lost, request), StatusCode::kEvicted);
}

// The bug: after the last branch was dropped Renew was Ok, and the bytes of the lease counted until
// its time was over, so that live hits got none.
TEST_P(FindLeaseTest, IsOverWhenTheContentIsDropped) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  for (const bool reopened : {false, true}) {
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(std::to_string(reopened) + std::to_string(shared));
      Branch chat = Make("chat", ids);
      Branch twin;
      if (shared) {
        ASSERT_OK_ASSIGN(twin, chat.ForkAt(300, {}));
      }
      if (reopened) {
        ASSERT_NO_FATAL_FAILURE(SealAndReopen());
        ASSERT_OK_ASSIGN(chat, store_.FindBranch("chat"));
        AskUntilComplete(store_, model_, ids, *world_->world().scheduler);
      }
      const PrefixHit hit = Lease(ids);
      ASSERT_NE(LeaseId{}, hit.lease);
      EXPECT_GT(store_.Metrics().leased_bytes, 0u);
      ASSERT_OK(chat.Drop());
      if (shared) {
        ASSERT_OK(store_.Renew(hit.lease, kMinute)) << "another branch has it";
        ASSERT_OK_ASSIGN(const BranchPage all, store_.ListBranches("", "", 100));
        for (const BranchInfo& info : all.branches) {
          ASSERT_OK(Branch(store_.core(), info.id).Drop());
        }
      }
      EXPECT_FAILS(store_.Renew(hit.lease, kMinute), StatusCode::kNotFound, "dropped");
      EXPECT_EQ(0u, store_.Metrics().leased_bytes);
      EXPECT_EQ(0u, store_.Metrics().leases);
      EXPECT_OK(store_.Release(hit.lease));
    }
  }
}

// Two whose time is over: the one on lease goes when that ends.
TEST_P(FindLeaseTest, HoldsAgainstExpiry) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  for (const char* name : {"held", "other"}) {
    ASSERT_OK_ASSIGN(Branch branch, store_.CreateBranch(model_, {.name = name}));
    ASSERT_OK(Append(branch, std::string(name) == "held" ? ids : Tokens(300, 6)));
    ASSERT_OK(branch.SetKeep({.ttl_ns = 20'000'000}));
  }
  const PrefixHit hit = Lease(ids);
  ASSERT_NE(LeaseId{}, hit.lease);
  const auto is_gone = [&](const char* name) {
    for (int i = 0; i < 300 && store_.FindBranch(name).ok(); ++i) {
      world_->world().scheduler->Sleep(10'000'000);
    }
    return !store_.FindBranch(name).ok();
  };
  EXPECT_TRUE(is_gone("other"));
  EXPECT_OK(store_.FindBranch("held"));
  ExpectForks(hit, ids, 300);
  ASSERT_OK(store_.Release(hit.lease));
  EXPECT_TRUE(is_gone("held"));
}

// So is one that would be evicted as a whole: here there is no KV to go first.
TEST_P(FindLeaseTest, HoldsABranchAgainstEviction) {
  const std::vector<TokenId> ids = Tokens(512, 5);
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 16 << 10, .evict = Evict::kBranches}));
  const auto make = [&](const std::string& name, std::span<const TokenId> tokens) {
    auto branch = store_.CreateBranch(model_, {.name = name, .ns = "small"});
    EXPECT_OK(branch);
    EXPECT_OK(branch->AppendSync(MakeDelta(tokens)));
  };
  make("held", ids);
  make("other", Tokens(512, 6));
  PrefixQuery query = Query(ids);
  query.ns = "small";
  query.lease_ns = kMinute;
  const PrefixHit hit = Ask(query);
  ASSERT_NE(LeaseId{}, hit.lease);
  for (uint64_t i = 0; i < 30; ++i) make("new-" + std::to_string(i), Tokens(512, 100 + i));
  EXPECT_FALSE(store_.FindBranch("other", "small").ok());
  EXPECT_OK(store_.FindBranch("held", "small"));
  ASSERT_OK(store_.Release(hit.lease));
  for (uint64_t i = 0; i < 30; ++i) make("newer-" + std::to_string(i), Tokens(512, 200 + i));
  EXPECT_FALSE(store_.FindBranch("held", "small").ok());
}

// More of them than are read ahead, and one that may go behind them.
TEST_P(FindLeaseTest, ManyOnLeaseDoNotKeepOthers) {
  for (uint64_t i = 0; i <= engine::kEvictAhead; ++i) {
    Branch held = Make("held-" + std::to_string(i), Tokens(64, 100 + i));
    ASSERT_NE(LeaseId{}, Lease(Tokens(64, 100 + i)).lease);
    ASSERT_OK(held.SetKeep({.ttl_ns = 1'000'000}));
  }
  ASSERT_OK(Make("other", Tokens(64, 1)).SetKeep({.ttl_ns = 20'000'000}));
  for (int i = 0; i < 500 && store_.FindBranch("other").ok(); ++i) {
    world_->world().scheduler->Sleep(10'000'000);
  }
  EXPECT_FALSE(store_.FindBranch("other").ok());
  EXPECT_OK(store_.FindBranch("held-0"));
}

// The branch that ends on the child has lost its KV: the restorable part lies on the parent, which
// no branch with KV of its own needs any more.
TEST_P(FindLeaseTest, HoldsKvOfWhatIsAbove) {
  const std::vector<TokenId> ids = Tokens(1000, 5);
  ASSERT_OK(store_.SetNamespace("small", {.max_bytes = 300'000, .evict = Evict::kKv}));
  Branch base = Make("base", std::span(ids).first(500), "small");
  ASSERT_OK_ASSIGN(Branch child, base.ForkAt(500, {.name = "child", .ns = "small"}));
  ASSERT_OK(Append(child, std::span(ids).subspan(500)));
  ASSERT_OK(Append(base, Tokens(10, 6)));
  PrefixQuery query = Query(ids);
  query.ns = "small";
  uint64_t made = 0;
  const auto more = [&] {
    ++made;
    Make("new-" + std::to_string(made), Tokens(200, 100 + made), "small");
  };
  while (Ask(query).restorable == 1000 && made < 100) {
    more();
    ASSERT_OK(Append(base, Tokens(1, made)));  // So the child is the first to go.
  }
  query.lease_ns = kMinute;
  const PrefixHit hit = Ask(query);
  ASSERT_EQ(1000u, hit.matched);
  ASSERT_EQ(500u, hit.restorable);
  ASSERT_NE(LeaseId{}, hit.lease);
  EXPECT_EQ(1000u * 68, store_.Metrics().leased_bytes);
  for (int i = 0; i < 60; ++i) more();
  KvSet got(spec_, Layout::kContiguous, 0, 500), want(spec_, Layout::kContiguous, 0, 500);
  want.Write(kSeed, 0, 500);
  RestoreRequest request;
  request.into = got.View(0, 500);
  request.end = 500;
  request.require_kv = true;
  ASSERT_OK(store_.Restore(hit, request));
  EXPECT_TRUE(got == want);
}

TEST_P(FindLeaseTest, IsNotKeptByASearchThatFails) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("b", ids, "two");
  ASSERT_NO_FATAL_FAILURE(SealAndReopen());
  Make("a", ids, "one");
  PrefixQuery query = Query(ids);
  query.ns = "one";
  ASSERT_EQ(300u, Ask(query).matched);  // In memory, from now on.
  query.lease_ns = kMinute;
  query.memory_only = true;
  ASSERT_EQ(300u, Ask(query).matched);
  ASSERT_EQ(1u, store_.Metrics().leases);
  const std::string_view also[] = {"two"};
  query.also = also;
  EXPECT_FAILS(store_.FindPrefix(query), StatusCode::kBusy);
  EXPECT_EQ(1u, store_.Metrics().leases);
}

TEST_P(FindLeaseTest, ADropWins) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Lease(ids);
  ASSERT_OK(chat.Drop());
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kNotFound, "node");
  EXPECT_OK(store_.Release(hit.lease));
}

TEST_P(FindLeaseTest, IsRenewedAndEnds) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Lease(ids, 50'000'000);
  ASSERT_OK(store_.Renew(hit.lease, kMinute));
  world_->world().scheduler->Sleep(60'000'000);
  ASSERT_OK(store_.Renew(hit.lease, 1'000'000));
  world_->world().scheduler->Sleep(5'000'000);
  EXPECT_FAILS(store_.Renew(hit.lease, kMinute), StatusCode::kNotFound, "is over");
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, Tokens(250, 6)));
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kConflict);
  EXPECT_FAILS(store_.Renew(LeaseId{999}, kMinute), StatusCode::kNotFound, "lease 999");
  EXPECT_OK(store_.Release(LeaseId{999}));
}

TEST_P(FindLeaseTest, IsNoLongerThanOptionsAllow) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Options options = FindingOptions();
  options.max_lease_ns = 1'000'000;
  WorldTest::Reopen(options);
  Make("chat", ids);
  const PrefixHit hit = Lease(ids, UINT64_MAX);
  ASSERT_NE(LeaseId{}, hit.lease);
  world_->world().scheduler->Sleep(5'000'000);
  EXPECT_FAILS(store_.Renew(hit.lease, 1), StatusCode::kNotFound);
}

// A token of the model is 64 bytes of KV and 4 of its id.
TEST_P(FindLeaseTest, HoldsNoMoreBytesThanOptionsAllow) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Options options = FindingOptions();
  options.max_leased_bytes = 500 * 68;
  WorldTest::Reopen(options);
  Make("chat", ids);
  const PrefixHit first = Lease(ids);
  ASSERT_NE(LeaseId{}, first.lease);
  EXPECT_EQ(300u * 68, store_.Metrics().leased_bytes);
  const PrefixHit second = Lease(ids);
  EXPECT_EQ(300u, second.matched);
  EXPECT_EQ(LeaseId{}, second.lease);
  const PrefixHit third = Lease(std::span(ids).first(200));
  EXPECT_NE(LeaseId{}, third.lease);
  EXPECT_EQ(2u, store_.Metrics().leases);
  EXPECT_EQ(500u * 68, store_.Metrics().leased_bytes);
  ASSERT_OK(store_.Release(first.lease));
  EXPECT_NE(LeaseId{}, Lease(ids).lease);
}

// The hit that is not reported is not held.
TEST_P(FindLeaseTest, OfTheBestNamespaceAlone) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Make("a", std::span(ids).first(200), "one");
  Make("b", ids, "two");
  Make("c", std::span(ids).first(100), "three");
  PrefixQuery query = Query(ids);
  const std::string_view also[] = {"two", "three"};
  query.ns = "one";
  query.also = also;
  query.lease_ns = kMinute;
  const PrefixHit hit = Ask(query);
  EXPECT_EQ(300u, hit.matched);
  EXPECT_EQ(1u, store_.Metrics().leases);
  ASSERT_OK(store_.Release(hit.lease));
  EXPECT_EQ(0u, store_.Metrics().leases);
}

TEST_P(FindLeaseTest, IsOfThisOpeningAlone) {
  const std::vector<TokenId> ids = Tokens(300, 5);
  Branch chat = Make("chat", ids);
  const PrefixHit hit = Lease(ids);
  ASSERT_NO_FATAL_FAILURE(Reopen());
  EXPECT_EQ(0u, store_.Metrics().leases);
  const PrefixHit others = Lease(ids);  // The first of this opening, as that one was.
  ASSERT_NE(LeaseId{}, others.lease);
  ASSERT_OK(store_.Release(hit.lease));  // Its owner may not know.
  EXPECT_EQ(1u, store_.Metrics().leases);
  EXPECT_FAILS(store_.Renew(hit.lease, kMinute), StatusCode::kNotFound);
  ASSERT_OK(store_.Release(others.lease));
  ExpectForks(hit, ids, 300);  // It is still true, as its ids say.
  chat = Find("chat");
  ASSERT_OK(chat.Rewind(100));
  ASSERT_OK(Append(chat, Tokens(250, 6)));
  EXPECT_FAILS(store_.Fork(hit, 300), StatusCode::kConflict, "other tokens");
}

}  // namespace
}  // namespace cairn::testing
