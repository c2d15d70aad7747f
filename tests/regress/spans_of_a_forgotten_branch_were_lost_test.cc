// SPDX-License-Identifier: Apache-2.0
//
// The bug: Spans and Path found the branch, let go of the lock, and then looked at its nodes, which
// could be forgotten meanwhile: what lay on these was missing from the answer, and no error said
// so. Method: a store that forgets all that it may, and somebody who writes to another branch all
// the time, so that there is always something to forget for.
#include <atomic>
#include <thread>

#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(SpansOfAForgottenBranchWereLost, BesideAWriter) {
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.tree_memory_bytes = 0;
  options.replay_records_max = 1;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  const std::vector<ContentSpan> spans{{.begin = 1, .end = 3, .hash = {7, 8}, .atomic = false}};
  ASSERT_OK(chat.AppendSync({.tokens = Tokens(4), .spans = spans}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(model));

  std::atomic<bool> ended{false};
  Status written;
  std::thread writer([&] {
    const std::vector<TokenId> one = Tokens(1);
    while (!ended && written.ok()) {
      written = other.AppendSync({.tokens = one}, {.durability = Durability::kMemory}).status();
    }
  });
  for (int i = 0; i < 100'000 && !::testing::Test::HasFailure(); ++i) {
    const auto found = chat.Spans(0, 4);
    const auto path = chat.Path();
    EXPECT_TRUE(found.ok() && *found == spans) << "at look " << i;
    EXPECT_TRUE(path.ok() && path->size() == 1) << "at look " << i;
  }
  ended = true;
  writer.join();
  EXPECT_OK(written);
}

}  // namespace
}  // namespace cairn::testing
