// SPDX-License-Identifier: Apache-2.0
//
// Stores that index what they hold, and what is asked of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cairn/find.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {

inline constexpr uint64_t kMinute = 60'000'000'000;

inline Options FindingOptions() {
  Options options = TinyOptions();
  options.index = Index::kPrefix;
  options.reuse_memory_bytes = 1 << 20;
  return options;
}

inline PrefixHit AskOf(const Store& store, const PrefixQuery& query) {
  const auto hit = store.FindPrefix(query);
  EXPECT_OK(hit);
  return hit.ok() ? *hit : PrefixHit();
}
inline PrefixHit AskOf(const Store& store, ModelId model, std::span<const TokenId> ids) {
  PrefixQuery query;
  query.model = model;
  query.tokens = ids;
  return AskOf(store, query);
}
// Until the answer is complete, which is to be so within a second.
inline PrefixHit AskUntilComplete(const Store& store, ModelId model, std::span<const TokenId> ids,
                                  io::Scheduler& scheduler) {
  PrefixHit hit;
  for (int i = 0; i < 1000 && !(hit = AskOf(store, model, ids)).complete; ++i) {
    scheduler.Sleep(1'000'000);
  }
  EXPECT_TRUE(hit.complete);
  return hit;
}

class FindTest : public WorldTest {
 protected:
  void SetUp() override {
    world_ = TestWorld::Make(GetParam());
    if (world_ == nullptr) GTEST_SKIP() << GetParam() << " is not granted on this machine";
    Reopen();
  }
  void Reopen() {
    WorldTest::Reopen(FindingOptions());
    model_ = Register(spec_);
  }
  // Nothing is lost, and what the index of prefixes had in memory alone is.
  void SealAndReopen() {
    ASSERT_OK(store_.Compact());
    Reopen();
  }

  // Appends these ids with KV, of `seed`.
  Status Append(Branch& branch, std::span<const TokenId> ids, uint64_t seed = kSeed,
                std::span<const ContentSpan> spans = {}, bool exact = true) {
    CAIRN_ASSIGN_OR_RETURN(const BranchInfo info, branch.Info());
    KvSet kv(spec_, Layout::kContiguous, info.length, ids.size());
    kv.Write(seed, info.length, info.length + ids.size());
    Delta delta = MakeDelta(ids, kv.View(info.length, ids.size()));
    delta.spans = spans;
    delta.exact = exact;
    return branch.AppendSync(delta).status();
  }
  Branch Make(const std::string& name, std::span<const TokenId> ids, const std::string& ns = "") {
    auto branch = store_.CreateBranch(model_, {.name = name, .ns = ns});
    EXPECT_OK(branch);
    EXPECT_OK(Append(*branch, ids));
    return *branch;
  }
  PrefixQuery Query(std::span<const TokenId> ids) const {
    PrefixQuery query;
    query.model = model_;
    query.tokens = ids;
    return query;
  }
  PrefixHit Ask(const PrefixQuery& query) { return AskOf(store_, query); }
  PrefixHit Ask(std::span<const TokenId> ids) { return Ask(Query(ids)); }

  // A fork of the hit holds these ids.
  void ExpectForks(const PrefixHit& hit, std::span<const TokenId> ids, uint64_t position) {
    ASSERT_OK_ASSIGN(Branch fork, store_.Fork(hit, position));
    ASSERT_OK_ASSIGN(const std::vector<TokenId> got, fork.ReadTokens(0, UINT64_MAX));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), ids.begin())) << "other ids";
    EXPECT_EQ(position, got.size());
    EXPECT_OK(fork.Drop());
  }

  ModelSpec spec_ = TinyModel();
  ModelId model_{};
};

// The first `count` ids, and then others.
inline std::vector<TokenId> Like(std::span<const TokenId> ids, uint64_t count, uint64_t more,
                                 uint64_t seed) {
  std::vector<TokenId> made(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  for (const TokenId id : Tokens(more, seed)) made.push_back(id);
  if (count < ids.size() && more != 0 && made[count] == ids[count]) ++made[count];
  return made;
}

}  // namespace cairn::testing
