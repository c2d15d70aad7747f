// SPDX-License-Identifier: Apache-2.0
//
// The bug: appends that waited to be coalesced were given to the log before their branch was
// evicted; where that had no room, which is when branches are evicted, they were refused, though
// accepted, and the branch was left alone all the same.
// Method: a branch with such appends that is next to be evicted, beside one that fills the store.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kWaiting = 12;

class AnEvictionRefused : public ::testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, AnEvictionRefused, ::testing::Range<uint64_t>(1, 7));

TEST_P(AnEvictionRefused, NothingThatWasAccepted) {
  const io::SimWorld machine = io::MakeSimWorld(GetParam());
  const ModelSpec model = WideModel();
  Options options = TinyOptions();
  options.max_bytes = 4 << 20;
  options.evict = Evict::kKv;
  options.delta_batch_tokens = 16;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  options.world = std::make_shared<io::World>(machine.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch waits, store.CreateBranch(id));
  const std::vector<TokenId> tokens = Tokens(kWaiting);
  KvSet kv(model, Layout::kContiguous, 0, kWaiting);
  kv.Write(kSeed, 0, kWaiting);
  std::vector<Ticket> accepted;
  for (uint64_t i = 0; i < kWaiting; ++i) {
    ASSERT_OK_ASSIGN(const Ticket ticket,
                     waits.Append(MakeDelta(std::span(tokens).subspan(i, 1), kv.View(i, 1))));
    accepted.push_back(ticket);
  }
  for (int chats = 0; chats < 15; ++chats) {  // 512 KiB each.
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
    for (uint64_t length = 0; length < 64; length += 8) {
      ASSERT_OK(AppendSome(chat, model, length, 8));
    }
  }
  EXPECT_GT(store.Metrics().evicted_bytes, 0U);
  ASSERT_OK(store.Flush());
  for (Ticket& ticket : accepted) EXPECT_OK(ticket.Wait());
  EXPECT_EQ(kWaiting, *waits.length());
}

}  // namespace
}  // namespace cairn::testing
