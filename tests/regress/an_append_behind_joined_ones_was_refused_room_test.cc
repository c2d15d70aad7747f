// SPDX-License-Identifier: Apache-2.0
//
// The bug: AppendSync was kNoSpace, though KV could have been evicted, when appends that waited to
// be coalesced stood before it and were the ones that found no room; they were refused with it.
// Method: coalesced appends with a synchronous one behind them, until far more was written than
// fits.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class AnAppendBehindJoinedOnes : public ::testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, AnAppendBehindJoinedOnes, ::testing::Range<uint64_t>(1, 7));

TEST_P(AnAppendBehindJoinedOnes, WaitsForRoomWithThem) {
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
  for (int chats = 0; chats < 15; ++chats) {  // 512 KiB each.
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
    for (uint64_t length = 0; length < 64; length += 8) {
      KvSet kv(model, Layout::kContiguous, length, 8);
      kv.Write(kSeed, length, length + 8);
      const std::vector<TokenId> tokens = Tokens(8, length + 1);
      const std::span<const TokenId> all = tokens;
      std::vector<Ticket> joined;
      for (uint64_t i = 0; i < 4; ++i) {
        ASSERT_OK_ASSIGN(const Ticket ticket,
                         chat.Append(MakeDelta(all.subspan(i, 1), kv.View(length + i, 1))));
        joined.push_back(ticket);
      }
      ASSERT_OK(chat.AppendSync(MakeDelta(all.subspan(4), kv.View(length + 4, 4))));
      for (Ticket& ticket : joined) EXPECT_OK(ticket.Wait());
    }
  }
  EXPECT_GT(store.Metrics().evicted_bytes, 0U);
}

}  // namespace
}  // namespace cairn::testing
