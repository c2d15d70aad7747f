// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append that was accepted to be joined with others, in the moment between another
// caller's look for such and the change that one made to the branch, was overtaken by it and then
// lost: its ticket ended as kConflict. Method: joined and blocking appends to one branch from two
// threads.
#include <atomic>
#include <thread>

#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(AnAppendToBeJoinedWasOvertaken, WhatIsAcceptedIsApplied) {
  const auto world = TestWorld::Make("threads");
  Options options = world->options();
  options.delta_batch_tokens = 4;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  constexpr AppendOptions kInMemory{.durability = Durability::kMemory};
  const std::vector<TokenId> one = Tokens(1), two = Tokens(2);
  std::atomic<bool> stop{false};
  uint64_t joined = 0;
  Status lost;
  std::thread other([&] {
    while (!stop && lost.ok()) {
      auto ticket = chat.Append({.tokens = one}, kInMemory);
      if (!ticket.ok()) continue;
      lost = ticket->Wait();
      joined += lost.ok() ? 1 : 0;
    }
  });
  uint64_t blocking = 0;
  for (int i = 0; i < 50'000; ++i) {
    blocking += chat.AppendSync({.tokens = two}, kInMemory).ok() ? 2 : 0;
  }
  stop = true;
  other.join();
  EXPECT_OK(lost);
  EXPECT_EQ(joined + blocking, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
