// SPDX-License-Identifier: Apache-2.0
//
// The bug: one-token appends were coalesced until they were delta_batch_tokens, also where the log
// has no record for so much: all of their tickets then failed, and so did every later append.
// Method: positions of 8 KiB, 64 of them to be coalesced, in segments of 256 KiB; and states that
// together are more than a record takes.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(JoinedPositionsOutgrewARecord, AsManyAreJoinedAsFit) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.delta_batch_tokens = 64;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  constexpr uint64_t kCount = 70;
  KvSet kv(spec, Layout::kContiguous, 0, kCount);
  kv.Write(kSeed, 0, kCount);
  const std::vector<TokenId> tokens = Tokens(kCount);
  AppMetadata metadata{.content_type = "", .bytes = std::vector<std::byte>(20'000)};
  std::vector<Ticket> tickets;
  for (uint64_t i = 0; i < kCount; ++i) {
    metadata.bytes[0] = std::byte(i);
    Delta delta{.tokens = std::span(tokens).subspan(i, 1), .kv = kv.View(i, 1)};
    delta.metadata = &metadata;
    Result<Ticket> ticket = chat.Append(delta);
    while (ticket.status().code() == StatusCode::kBusy) {
      EXPECT_OK(tickets.back().Wait());
      ticket = chat.Append(delta);
    }
    ASSERT_OK(ticket);
    tickets.push_back(*ticket);
  }
  for (Ticket& ticket : tickets) EXPECT_OK(ticket.Wait());
  ASSERT_OK_ASSIGN(const BranchInfo info, chat.Info());
  EXPECT_EQ(kCount, info.length);
  EXPECT_EQ(kCount, info.kv_lengths[0]);
  for (uint64_t i = 1; i <= kCount; ++i) {
    ASSERT_OK_ASSIGN(const auto at, chat.MetadataAt(i));
    EXPECT_EQ(i, at.position);
    EXPECT_EQ(std::byte(i - 1), at.metadata->bytes[0]);
  }
}

}  // namespace
}  // namespace cairn::testing
