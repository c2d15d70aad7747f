// SPDX-License-Identifier: Apache-2.0
//
// Property: an append of any size is one append: larger than a record, a group or a segment, given
// in the call or borrowed, it comes back bit for bit and counts whole or not at all.
// Method: appends of several MiB beside segments of 256 KiB and of 4 MiB.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class LargeAppendTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = WideModel();
  }
  // A fresh store with these segments.
  void Start(uint64_t segment_bytes) {
    ASSERT_OK(store_.Close());
    options_ = world_->options();
    options_.segment_bytes = segment_bytes;
    auto opened = Store::Open(world_->path() + std::to_string(segment_bytes), options_);
    ASSERT_OK(opened);
    store_ = std::move(*opened);
    chat_ = Create(Register(model_), "chat");
  }
  void StartAgain() {
    ASSERT_OK(store_.Close());
    auto opened = Store::Open(world_->path() + std::to_string(options_.segment_bytes), options_);
    ASSERT_OK(opened);
    store_ = std::move(*opened);
    chat_ = Find("chat");
  }
  Options options_;
  ModelSpec model_;
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, LargeAppendTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

TEST_P(LargeAppendTest, BlockingAndBorrowed) {
  for (const uint64_t segment_bytes : {uint64_t{256} << 10, uint64_t{4} << 20}) {
    SCOPED_TRACE(segment_bytes);
    ASSERT_NO_FATAL_FAILURE(Start(segment_bytes));
    constexpr uint64_t kCount = 640;  // 5 MiB.
    KvSet kv(model_, Layout::kNhd, 0, 2 * kCount + 20);
    kv.Write(kSeed, 0, 2 * kCount + 20);
    const std::vector<TokenId> tokens = Tokens(2 * kCount + 20);
    const SamplerState sampler{.generator = GeneratorKind::kPhilox,
                               .philox_seed = 5,
                               .philox_offset = 17,
                               .blob_name = {},
                               .blob = {},
                               .last_logits = {}};
    Delta delta = MakeDelta(std::span(tokens).first(kCount), kv.View(0, kCount));
    delta.sampler = &sampler;
    ASSERT_OK(chat_.AppendSync(delta));
    EXPECT_EQ(kCount, *chat_.length());
    ASSERT_OK(
        chat_.AppendSync(MakeDelta(std::span(tokens).subspan(kCount, 20), kv.View(kCount, 20))));
    AppendOptions options;
    options.durability = Durability::kPower;
    options.expected_length = kCount + 20;
    ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(std::span(tokens).subspan(kCount + 20),
                                                           kv.View(kCount + 20, kCount)),
                                                 options));
    ASSERT_OK(ticket.Wait());
    EXPECT_TRUE(ticket.released());
    EXPECT_EQ(2 * kCount + 20, ticket.length());
    EXPECT_EQ(2 * kCount + 20, *chat_.durable_length());
    for (const bool cold : {false, true}) {
      if (cold) {
        ASSERT_NO_FATAL_FAILURE(StartAgain());
      }
      EXPECT_EQ(tokens, *chat_.ReadTokens(0, tokens.size()));
      EXPECT_TRUE(HasKv(chat_, model_, 0, tokens.size()));
      EXPECT_TRUE(HasKv(chat_, model_, 600, 700));
      ASSERT_OK_ASSIGN(const Branch::StateAt state, chat_.SamplerAt(kCount));
      EXPECT_EQ(kCount, state.position);
      EXPECT_EQ(sampler, *state.sampler);
    }
    ASSERT_OK(chat_.Rewind(333));
    ASSERT_OK(AppendSome(chat_, model_, 333, 5));
    EXPECT_TRUE(HasKv(chat_, model_, 0, 338));
  }
}

// Sizes around what is copied in the call and what one record of a small segment can hold.
TEST_P(LargeAppendTest, EverySizeFitsSmallSegments) {
  ASSERT_NO_FATAL_FAILURE(Start(256 << 10));
  uint64_t length = 0;
  for (const uint64_t count : {1, 7, 8, 9, 14, 15, 16, 17, 24, 29, 30, 31, 32, 33, 60, 130, 260}) {
    KvSet kv(model_, Layout::kContiguous, length, 2 * count);
    kv.Write(kSeed, length, length + 2 * count);
    const std::vector<TokenId> tokens = Tokens(2 * count);
    ASSERT_OK(chat_.AppendSync(MakeDelta(std::span(tokens).first(count), kv.View(length, count))))
        << count;
    Status status(StatusCode::kBusy, "");
    while (status.code() == StatusCode::kBusy) {
      auto ticket =
          chat_.Append(MakeDelta(std::span(tokens).last(count), kv.View(length + count, count)));
      status = ticket.ok() ? ticket->Wait() : ticket.status();
      world_->world().scheduler->Sleep(100'000);
    }
    ASSERT_OK(status) << count;
    length += 2 * count;
    ASSERT_EQ(length, *chat_.length());
  }
  EXPECT_TRUE(HasKv(chat_, model_, 0, length));
  ASSERT_NO_FATAL_FAILURE(StartAgain());
  EXPECT_TRUE(HasKv(chat_, model_, 0, length));
}

TEST_P(LargeAppendTest, ManyTokensWithoutKvAndALargeFill) {
  ASSERT_NO_FATAL_FAILURE(Start(256 << 10));
  const std::vector<TokenId> tokens = Tokens(800'000);
  ASSERT_OK(chat_.AppendSync(MakeDelta(tokens)));
  EXPECT_EQ(tokens, *chat_.ReadTokens(0, tokens.size()));
  KvSet kv(model_, Layout::kHnd, 0, 500);
  kv.Write(kSeed, 0, 500);
  ASSERT_OK(chat_.Fill(*kv.View(0, 500)));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 500));
  ASSERT_NO_FATAL_FAILURE(StartAgain());
  EXPECT_EQ(tokens, *chat_.ReadTokens(0, tokens.size()));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 500));
}

TEST_P(LargeAppendTest, APositionThatFitsNoRecordIsRefusedAndTheBranchGoesOn) {
  model_ = TokenModel("giant");
  model_.groups.push_back(
      LayerGroup::FullAttention(64, 32, 64, Dtype::kBf16));  // 512 KiB per token.
  ASSERT_NO_FATAL_FAILURE(Start(256 << 10));
  KvSet kv(model_, Layout::kContiguous, 0, 3);
  const std::vector<TokenId> tokens = Tokens(3);
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens, kv.View(0, 3))), StatusCode::kInvalidArgument,
               "segment_bytes");
  auto ticket = chat_.Append(MakeDelta(tokens, kv.View(0, 3)));
  EXPECT_FAILS(ticket.ok() ? ticket->Wait() : ticket.status(), StatusCode::kInvalidArgument,
               "segment_bytes");
  EXPECT_EQ(0u, *chat_.length());
  ASSERT_OK_ASSIGN(Ticket next, chat_.Append(MakeDelta(tokens)));
  EXPECT_OK(next.Wait());
}

// One position of both groups together is larger than a record, one of each is not.
TEST_P(LargeAppendTest, GroupsFollowEachOtherWhereARecordHoldsOneAlone) {
  model_ = TokenModel("wide");
  for (int group = 0; group < 2; ++group) {
    model_.groups.push_back(LayerGroup::FullAttention(20, 32, 64, Dtype::kBf16));  // 160 KiB.
    model_.groups.back().name = "half " + std::to_string(group);
  }
  ASSERT_NO_FATAL_FAILURE(Start(256 << 10));
  ASSERT_OK(AppendSome(chat_, model_, 0, 3));
  KvSet kv(model_, Layout::kContiguous, 3, 2);
  kv.Write(kSeed, 3, 5);
  const std::vector<TokenId> tokens = Tokens(2);
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(tokens, kv.View(3, 2))));
  ASSERT_OK(ticket.Wait());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 5));
  ASSERT_NO_FATAL_FAILURE(StartAgain());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 5));
}

// The disk writes of a prefill, by the store's own account: random bytes, which no codec packs.
TEST_P(LargeAppendTest, APrefillIsWrittenOnce) {
  ASSERT_NO_FATAL_FAILURE(Start(4 << 20));
  const StoreMetrics before = store_.Metrics();
  constexpr uint64_t kCount = 2048;  // 16 MiB.
  ASSERT_OK(AppendSome(chat_, model_, 0, kCount, kSeed, Durability::kPower));
  const StoreMetrics after = store_.Metrics();
  const auto raw = static_cast<double>(kCount * (model_.token_bytes() + sizeof(TokenId)));
  const auto written = static_cast<double>(after.log_bytes_written - before.log_bytes_written +
                                           after.table_bytes_written - before.table_bytes_written);
  EXPECT_GT(written / raw, 0.5);
  EXPECT_LE(written / raw, 1.02);
}

// Calls while a large append is gathered: one that never waits gets an error, one that waits gets
// it at its deadline, and one that has time goes on from there.
TEST(LargeAppendInSimulationTest, WhatComesBetweenIsBusyOrWaits) {
  const auto world = TestWorld::Make("simulated");
  Options options = world->options();
  options.delta_batch_tokens = 4;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  constexpr uint64_t kCount = 640;  // 5 MiB.
  KvSet kv(model, Layout::kContiguous, 0, 2 * kCount);
  kv.Write(kSeed, 0, 2 * kCount);
  const std::vector<TokenId> tokens = Tokens(2 * kCount);
  const std::string busy = "a large append of this branch is being gathered";
  ASSERT_OK(chat.AppendSync(MakeDelta(std::span(tokens).first(10))));
  ASSERT_OK(chat.Fill(*kv.View(0, 5)));
  // The KV goes on where a fill of [3, 8) would.
  ASSERT_OK_ASSIGN(Ticket large, chat.Append(MakeDelta(std::span(tokens).subspan(10, kCount - 10),
                                                       kv.View(5, kCount - 5))));
  EXPECT_FAILS(chat.Append(MakeDelta(std::span(tokens).first(1))), StatusCode::kBusy, busy);
  const Delta next = MakeDelta(std::span(tokens).subspan(kCount), kv.View(kCount, kCount));
  EXPECT_FAILS(chat.Append(next), StatusCode::kBusy, busy);
  AppendOptions hasty;
  hasty.timeout_ns = 1000;
  EXPECT_FAILS(chat.AppendSync(next, hasty), StatusCode::kDeadlineExceeded,
               "a large append of this branch took too long");
  EXPECT_OK(chat.Fill(*kv.View(3, 5))) << "it waits, and finds [5, 8) filled";
  ASSERT_OK(large.Wait());
  EXPECT_EQ(kCount, *chat.length());
  EXPECT_TRUE(HasKv(chat, model, 0, kCount));
}

// The same for one that brings no KV, without coalesced ones: the fill waits, and comes through.
TEST(LargeAppendInSimulationTest, AFillWaitsForIt) {
  const auto world = TestWorld::Make("simulated");
  ASSERT_OK_ASSIGN(Store store, world->Open());
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  KvSet kv(model, Layout::kContiguous, 0, 10);
  kv.Write(kSeed, 0, 10);
  const std::vector<TokenId> tokens = Tokens(800'010);
  ASSERT_OK(chat.AppendSync(MakeDelta(std::span(tokens).first(10))));
  ASSERT_OK(chat.Fill(*kv.View(0, 5)));
  ASSERT_OK_ASSIGN(Ticket large, chat.Append(MakeDelta(std::span(tokens).subspan(10))));
  EXPECT_FAILS(chat.Append(MakeDelta(tokens)), StatusCode::kBusy,
               "a large append of this branch is being gathered");
  ASSERT_OK(chat.Fill(*kv.View(3, 5)));
  ASSERT_OK(large.Wait());
  EXPECT_EQ(tokens, *chat.ReadTokens(0, tokens.size()));
  EXPECT_TRUE(HasKv(chat, model, 0, 8));
}

}  // namespace
}  // namespace cairn::testing
