// SPDX-License-Identifier: Apache-2.0
//
// When the log failed the tree went back to what was acknowledged, and changes under way met it as
// if somebody else had changed the branch: appends to be coalesced ended as kConflict, others as
// kInvalidArgument, as if their caller had made a mistake. Found by a swarm on a simulated machine.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(RegressTest, AFailedLogWasToldAsAConflict) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.delta_batch_tokens = 8;
  options.delta_batch_wait_ns = 1'000'000'000;
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
  const std::vector<TokenId> two = Tokens(2), one = Tokens(1);
  ASSERT_OK(chat.AppendSync(MakeDelta(two), {.durability = Durability::kPower}));

  sim.disk->AddFault({.when =
                          [](const io::SimOperation& operation) {
                            return operation.changes_world() &&
                                   operation.path.find("/log/") != std::string::npos;
                          },
                      .error = EIO,
                      .persistent = true});
  ASSERT_OK(chat.AppendSync(MakeDelta(two), {.durability = Durability::kMemory}));
  ASSERT_OK_ASSIGN(Ticket joined, chat.Append(MakeDelta(one), {.durability = Durability::kPower}));
  EXPECT_FALSE(other.AppendSync(MakeDelta(one), {.durability = Durability::kPower}).ok());
  EXPECT_EQ(StatusCode::kPoisoned, store.poisoned().code());
  EXPECT_FAILS(joined.Wait(), StatusCode::kPoisoned);
  EXPECT_EQ(2U, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
