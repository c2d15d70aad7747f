// SPDX-License-Identifier: Apache-2.0
//
// The bug: a log that failed took back what it had not acknowledged, and leases stayed. A hit on
// lease then counted as confirmed, though its node had the tokens of before again: a restore
// delivered those, as if they were of the prompt.
#include "sim/world.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

TEST(ALease, EndsWithTheLogThatFails) {
  io::SimWorld sim = io::MakeSimWorld(1);
  Options options = FindingOptions();
  options.world = std::make_shared<io::World>(sim.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model, {.name = "chat"}));
  const std::vector<TokenId> ids = Tokens(300, 5), other = Like(ids, 100, 200, 6);
  ASSERT_OK(chat.AppendSync(MakeDelta(ids), {.durability = Durability::kPower}));
  io::SimFault fault;
  fault.when = [](const io::SimOperation& operation) {
    return operation.path.find("/log/") != std::string::npos &&
           (operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite);
  };
  fault.error = EIO;
  fault.persistent = true;
  sim.disk->AddFault(std::move(fault));
  ASSERT_OK(chat.Rewind(100, Durability::kMemory));
  ASSERT_OK(chat.AppendSync(MakeDelta(std::span(other).subspan(100)),
                            {.durability = Durability::kMemory}));
  PrefixQuery query;
  query.model = model;
  query.tokens = other;
  query.lease_ns = kMinute;
  ASSERT_OK_ASSIGN(const PrefixHit hit, store.FindPrefix(query));
  ASSERT_EQ(300u, hit.matched);
  ASSERT_NE(LeaseId{}, hit.lease);
  EXPECT_FALSE(store.Flush().ok());
  EXPECT_FAILS(store.poisoned(), StatusCode::kPoisoned, "log/");
  ASSERT_EQ(ids, *chat.ReadTokens(0, 300)) << "it was taken back";
  std::vector<TokenId> got(300);
  RestoreRequest request;
  request.tokens = got;
  EXPECT_FAILS(store.Restore(hit, request), StatusCode::kConflict, "other tokens");
  EXPECT_EQ(0u, store.Metrics().leases);
}

}  // namespace
}  // namespace cairn::testing
