// SPDX-License-Identifier: Apache-2.0
//
// The bug: a wait with a time limit led a group on its own thread and came back when the disk did,
// however late.
// Method: a simulated disk that needs 40 ms for everything, waits of 1 ms.
#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

TEST(TimedWaitOutlivedItsLimit, EndsOnTime) {
  constexpr uint64_t kMs = 1'000'000;
  io::SimWorld sim =
      io::MakeSimWorld(1, {.write = {40 * kMs, 40 * kMs}, .durable = {40 * kMs, 40 * kMs}});
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
  const std::vector<TokenId> tokens = Tokens(1);
  ASSERT_OK_ASSIGN(Ticket ticket,
                   chat.Append({.tokens = tokens}, {.durability = Durability::kPower}));
  uint64_t before = sim.scheduler->MonotonicNs();
  EXPECT_FAILS(ticket.Wait(kMs), StatusCode::kDeadlineExceeded);
  EXPECT_LT(sim.scheduler->MonotonicNs() - before, 10 * kMs);
  before = sim.scheduler->MonotonicNs();
  EXPECT_FAILS(
      chat.AppendSync({.tokens = tokens}, {.durability = Durability::kPower, .timeout_ns = kMs}),
      StatusCode::kUnknownOutcome);
  EXPECT_LT(sim.scheduler->MonotonicNs() - before, 10 * kMs);
  EXPECT_OK(ticket.Wait());
}

}  // namespace
}  // namespace cairn::testing
