// SPDX-License-Identifier: Apache-2.0
//
// The bug: a completion held its ticket and the ticket its queue, so a queue that nobody drained
// lived for ever, and with it the store's world.
// Method: a queue goes undrained; what it held is let go of.
#include "tests/support/kv_pool.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(UndrainedQueueKeptStoreAlive, EverythingIsLetGo) {
  const auto world = std::make_shared<const io::World>(io::MakeMemoryWorld());
  const long before = world->files.use_count();
  {
    Options options;
    options.create_if_missing = true;
    options.segment_bytes = 256 << 10;
    options.world = world;
    ASSERT_OK_ASSIGN(Store store, Store::Open("store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TinyModel()));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
    ASSERT_OK_ASSIGN(CompletionQueue queue, store.NewCompletionQueue());
    const std::vector<TokenId> tokens = Tokens(1);
    for (const Durability durability : {Durability::kMemory, Durability::kPower}) {
      AppendOptions append;
      append.durability = durability;
      append.queue = &queue;
      ASSERT_OK_ASSIGN(Ticket ticket, chat.Append({.tokens = tokens}, append));
      ASSERT_OK(ticket.Wait());
    }
    ASSERT_OK(store.Close());
  }
  EXPECT_EQ(before, world->files.use_count());
}

}  // namespace
}  // namespace cairn::testing
