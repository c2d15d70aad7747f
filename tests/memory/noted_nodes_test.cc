// SPDX-License-Identifier: Apache-2.0
//
// Property: a search that is refused memory forgets no node that it was about to index: an answer
// that says afterwards that it is complete is. Method: more nodes than a search indexes are noted,
// the n-th allocation of a search fails, for every n, and every node is asked for behind that.
#include <vector>

#include "tests/engine/find_test.h"
#include "tests/memory/failing_new.h"

namespace cairn::testing {
namespace {

TEST(NotedNodesTest, AreNotForgottenWithoutMemory) {
  Options options = FindingOptions();
  options.segment_bytes = 64 << 20;  // All of it: nothing is given back meanwhile.
  options.reuse_memory_bytes = 16 << 20;
  ASSERT_OK_ASSIGN(Store store, Store::Open(":memory:", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK(store.PauseBackground());  // It would index them.
  constexpr uint64_t kNodes = 300;
  PrefixQuery query;
  query.model = model;
  uint64_t failed = 0;
  for (uint64_t n = 1; n <= 60; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::vector<std::vector<TokenId>> prompts;
    for (uint64_t i = 0; i < kNodes; ++i) {
      prompts.push_back(Tokens(64, 1000 * n + i));
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model));
      ASSERT_OK(branch.AppendSync(MakeDelta(prompts.back())));
    }
    query.tokens = prompts.front();
    memory::SetFailPlan({.at = n});
    {
      const memory::FailingScope scope;
      static_cast<void>(store.FindPrefix(query));
    }
    memory::EndFailPlan();
    failed += memory::AllocationsFailed();
    for (const auto& prompt : prompts) {
      query.tokens = prompt;
      ASSERT_OK_ASSIGN(const PrefixHit hit, store.FindPrefix(query));
      ASSERT_TRUE(hit.matched == prompt.size() || !hit.complete);
    }
  }
  EXPECT_GT(failed, 50u);
  ASSERT_OK(store.ResumeBackground());
}

}  // namespace
}  // namespace cairn::testing
