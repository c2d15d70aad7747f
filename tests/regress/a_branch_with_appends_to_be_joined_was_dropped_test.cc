// SPDX-License-Identifier: Apache-2.0
//
// The bug: eviction and expiry dropped a branch although appends to it had been accepted and waited
// to be coalesced; their tickets ended as kNotFound. Method: a long wait, and each of the two.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class ABranchWithAppendsToBeJoinedWasDropped : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = world_->options();
    options.delta_batch_tokens = 8;
    options.delta_batch_wait_ns = 3'600'000'000'000;
    ASSERT_OK_ASSIGN(store_, world_->Open(options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
  }

  const ModelSpec model_ = WideModel();
  const std::vector<TokenId> one_ = Tokens(1);
  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("simulated");
  Store store_;
  ModelId id_{};
};

TEST_F(ABranchWithAppendsToBeJoinedWasDropped, ToMakeRoom) {
  const uint64_t position_bytes = model_.token_bytes() + sizeof(TokenId);
  ASSERT_OK(store_.SetNamespace("t", {.max_bytes = 8 * position_bytes, .evict = Evict::kBranches}));
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(id_, {.ns = "t"}));
  ASSERT_OK(AppendSome(chat, model_, 0, 6));
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append({.tokens = one_}));
  ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id_, {.ns = "t"}));
  static_cast<void>(AppendSome(other, model_, 0, 8));  // Room for this, and nothing else.
  EXPECT_OK(ticket.Wait());
}

TEST_F(ABranchWithAppendsToBeJoinedWasDropped, WhenItExpires) {
  constexpr uint64_t kSecond = 1'000'000'000;
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(id_, {.keep = {.ttl_ns = 10 * kSecond}}));
  ASSERT_OK(AppendSome(chat, model_, 0, 6));
  world_->world().scheduler->Sleep(9 * kSecond);
  ASSERT_OK_ASSIGN(Ticket ticket, chat.Append({.tokens = one_}));
  world_->world().scheduler->Sleep(5 * kSecond);
  EXPECT_OK(ticket.Wait());
  EXPECT_EQ(7u, *chat.length());
}

}  // namespace
}  // namespace cairn::testing
