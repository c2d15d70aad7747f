// SPDX-License-Identifier: Apache-2.0
//
// The bug: appends of one token that wait to be coalesced were as many as may be
// (delta_batch_tokens), and the log had no room for them yet; one more was accepted nevertheless,
// and its KV put beyond the end of the memory for it, where a check ended the process. (One that
// was not to be coalesced waited for the disk, which an asynchronous append never does.) Method:
// making a log segment takes long; another branch fills the one there is; one token after the other
// is appended then.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(AppendsJoinedBeyondTheirNumberCrashed, WhatIsMoreIsRefusedUntilThereIsRoom) {
  constexpr uint32_t kJoined = 4;
  const io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  options.delta_batch_tokens = kJoined;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
  constexpr uint64_t kMost = 400;
  KvSet kv(model, Layout::kContiguous, 0, kMost);
  kv.Write(kSeed, 0, kMost);
  const std::vector<TokenId> tokens = Tokens(kMost, kSeed);
  const auto append = [&](Branch& branch, uint64_t begin, uint64_t count) {
    const KvView* view = kv.View(begin, count);
    return branch.Append({.tokens = std::span(tokens).subspan(begin, count), .kv = view},
                         {.durability = Durability::kMemory});
  };
  sim.disk->AddFault({.when =
                          [](const io::SimOperation& operation) {
                            return operation.path.find("spare-") != std::string::npos;
                          },
                      .delay_ns = 100'000'000'000,
                      .persistent = true});
  // Until less of the segment is left than what is coalesced takes.
  Status busy;
  for (uint64_t at = 0; busy.message().find("next log segment") == std::string_view::npos;) {
    ASSERT_LT(at + 2, kMost);
    busy = append(other, at, 2).status();
    at += busy.ok() ? 2 : 0;
    if (!busy.ok()) sim.scheduler->Sleep(1'000'000);
  }
  std::vector<Ticket> accepted;
  for (uint64_t i = 0; i < 3 * kJoined; ++i) {
    auto ticket = append(chat, accepted.size(), 1);
    if (ticket.ok()) {
      accepted.push_back(std::move(*ticket));
    } else {
      EXPECT_EQ(StatusCode::kBusy, ticket.status().code());
    }
  }
  EXPECT_EQ(kJoined, accepted.size());
  sim.disk->ClearFaults();
  for (Ticket& ticket : accepted) EXPECT_OK(ticket.Wait());
  EXPECT_EQ(accepted.size(), *chat.length());
  EXPECT_TRUE(HasKv(chat, model, 0, accepted.size()));
}

}  // namespace
}  // namespace cairn::testing
