// SPDX-License-Identifier: Apache-2.0
//
// Property: coalescing one-token appends changes latency, never meaning: each has its own length,
// ticket and state, everything that looks at the branch sees them, and a full or old batch goes.
// Method: delta_batch_tokens 4, with every call that touches a branch in between.
#include <atomic>
#include <cerrno>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class CoalescedAppendTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    options_ = world_->options();
    options_.delta_batch_tokens = 4;
    options_.delta_batch_wait_ns = 3'600'000'000'000;  // No timer unless a test says so.
    Reopen(options_);
    model_ = HybridModel();
    chat_ = Create(Register(model_), "chat");
    tokens_ = Tokens(100);
  }
  // The token at the branch's next position, with its KV.
  Ticket One(uint64_t position, const SamplerState* sampler = nullptr,
             Durability durability = Durability::kProcess) {
    KvSet kv(model_, Layout::kNhd, position, 1);
    kv.Write(kSeed, position, position + 1);
    Delta delta = MakeDelta(std::span(tokens_).subspan(position, 1), kv.View(position, 1));
    delta.sampler = sampler;
    AppendOptions options;
    options.durability = durability;
    options.expected_length = position;
    auto ticket = chat_.Append(delta, options);
    EXPECT_OK(ticket);
    return ticket.ok() ? *ticket : Ticket();
  }
  uint64_t records() { return store_.Metrics().log_records; }
  Options options_;
  ModelSpec model_;
  Branch chat_;
  std::vector<TokenId> tokens_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, CoalescedAppendTest,
                         ::testing::Values("memory", "threads", "simulated"), NameOf);

TEST_P(CoalescedAppendTest, AFullBatchIsOneRecord) {
  const uint64_t before = records();
  std::vector<Ticket> tickets;
  for (uint64_t i = 0; i < 3; ++i) tickets.push_back(One(i));
  for (const Ticket& ticket : tickets) {
    EXPECT_FALSE(ticket.done());
    EXPECT_TRUE(ticket.released()) << "it was copied";
  }
  EXPECT_EQ(before, records());
  tickets.push_back(One(3));
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_OK(tickets[i].Wait());
    EXPECT_EQ(i + 1, tickets[i].length());
  }
  EXPECT_EQ(before + 1, records());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 4));
}

TEST_P(CoalescedAppendTest, TheTimerEndsTheWait) {
  options_.delta_batch_wait_ns = 1'000'000;
  Reopen(options_);
  chat_ = Find("chat");
  CompletionQueue queue = *store_.NewCompletionQueue();
  AppendOptions options;
  options.queue = &queue;
  options.user_data = 42;
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(std::span(tokens_).first(1)), options));
  ASSERT_TRUE(queue.Wait(10'000'000'000));
  const std::vector<Completion> done = queue.Drain();
  ASSERT_EQ(1u, done.size());
  EXPECT_EQ(42u, done[0].user_data);
  EXPECT_OK(done[0].status);
  EXPECT_OK(ticket.status());
}

TEST_P(CoalescedAppendTest, WaitingForATicketFlushesIt) {
  Ticket ticket = One(0);
  EXPECT_OK(ticket.Wait());
  Ticket durable = One(1, nullptr, Durability::kPower);
  EXPECT_OK(durable.Wait());
  EXPECT_EQ(2u, *chat_.durable_length());
  Ticket fast = One(2, nullptr, Durability::kMemory);
  EXPECT_OK(fast.Wait());
}

TEST_P(CoalescedAppendTest, EveryOtherCallSeesTheTokens) {
  uint64_t at = 0;
  One(at++);
  EXPECT_EQ(at, *chat_.length());
  One(at++);
  EXPECT_EQ(at, chat_.Info()->length);
  One(at++);
  EXPECT_TRUE(HasKv(chat_, model_, 0, at));
  One(at++);
  EXPECT_EQ(at, chat_.ReadTokens(0, at)->size());
  One(at++);
  EXPECT_EQ(at, *chat_.ForkAt(at, {})->length());
  One(at++);
  EXPECT_EQ(at, chat_.Path()->back().end);
  One(at++);
  EXPECT_EQ(at, store_.ListBranches("", "chat", 10)->branches[0].length);
  One(at++);
  ASSERT_OK(AppendSome(chat_, model_, at, 2));
  at += 2;
  One(at++);
  ASSERT_OK(chat_.Rename("chat"));
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(1));
  ASSERT_OK_ASSIGN(Ticket committed,
                   draft.Commit(MakeDelta(std::span(tokens_).subspan(at, 1)), {}));
  ASSERT_OK(committed.Wait());
  ++at;
  KvSet kv(model_, Layout::kNhd, at - 1, 1);
  kv.Write(kSeed, at - 1, at);
  ASSERT_OK(chat_.Fill(*kv.View(at - 1, 1)));
  One(at++);
  WriteBatch batch;
  batch.Append(chat_, MakeDelta(std::span(tokens_).subspan(at, 1)), at);
  ASSERT_OK(store_.Write(batch));
  ++at;
  KvSet last(model_, Layout::kNhd, at - 1, 1);
  last.Write(kSeed, at - 1, at);
  ASSERT_OK(chat_.Fill(*last.View(at - 1, 1)));
  One(at++);
  ASSERT_OK(store_.Flush());
  EXPECT_EQ(at, *chat_.durable_length());
  One(at++);
  ASSERT_OK(chat_.Rewind(at - 1));
  --at;
  One(at++);
  ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
  EXPECT_TRUE(report.damages.empty());
  One(at++);
  Reopen(options_);
  chat_ = Find("chat");
  EXPECT_EQ(at, *chat_.length());
  EXPECT_TRUE(HasKv(chat_, model_, 0, at));
}

TEST_P(CoalescedAppendTest, StatesKeepTheirPositions) {
  std::vector<SamplerState> states(6);
  for (uint64_t i = 0; i < states.size(); ++i) {
    states[i].generator = GeneratorKind::kPhilox;
    states[i].philox_offset = i;
    One(i, &states[i]);
  }
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < states.size(); ++i) {
      ASSERT_OK_ASSIGN(const Branch::StateAt at, chat_.SamplerAt(i + 1));
      EXPECT_EQ(i + 1, at.position);
      EXPECT_EQ(states[i], at.sampler);
    }
    Reopen(options_);
    chat_ = Find("chat");
  }
}

TEST_P(CoalescedAppendTest, ExpectedLengthCountsWhatWaits) {
  One(0);
  One(1);
  AppendOptions options;
  options.expected_length = 1;
  EXPECT_FAILS(chat_.Append(MakeDelta(std::span(tokens_).first(1)), options), StatusCode::kConflict,
               "2 tokens");
  options.expected_length = 2;
  EXPECT_OK(chat_.Append(MakeDelta(std::span(tokens_).first(1)), options));
  EXPECT_EQ(3u, *chat_.length());
}

// KV may lag inside a batch, and what cannot be coalesced goes its own way after it.
TEST_P(CoalescedAppendTest, KvThatLagsAndKvThatDoesNotConnect) {
  KvSet kv(model_, Layout::kNhd, 0, 20);
  kv.Write(kSeed, 0, 20);
  const auto append = [&](uint64_t at, std::vector<std::pair<uint64_t, uint64_t>> parts) {
    return chat_.Append(MakeDelta(std::span(tokens_).subspan(at, 1), kv.View(parts)));
  };
  ASSERT_OK(chat_.Append(MakeDelta(std::span(tokens_).first(1))));
  ASSERT_OK(append(1, {{0, 1}, {0, 1}, {0, 0}, {0, 1}}));
  ASSERT_OK(append(2, {{1, 1}, {1, 1}, {0, 1}, {1, 1}}));
  EXPECT_EQ((std::vector<uint64_t>{2, 2, 1, 2}), chat_.Info()->kv_lengths);
  ASSERT_OK(append(3, {{2, 1}, {2, 1}, {1, 1}, {2, 1}}));
  EXPECT_FAILS(append(4, {{4, 1}, {3, 1}, {2, 1}, {3, 1}}), StatusCode::kInvalidArgument,
               "begins at position 4");
  ASSERT_OK(append(4, {{3, 2}, {3, 2}, {2, 3}, {3, 2}})) << "more than one position";
  EXPECT_TRUE(HasKv(chat_, model_, 0, 5));
}

// A batch that is full when the log is busy goes a little later, by the timer.
TEST_P(CoalescedAppendTest, AFullBatchThatFindsTheLogBusyGoesLater) {
  options_.delta_batch_wait_ns = 1'000'000;
  Reopen(options_);
  chat_ = Find("chat");
  const ModelSpec wide = WideModel();
  Branch other = Create(Register(wide), "wide");
  Branch third = Create(Register(wide), "third");
  KvSet kv(wide, Layout::kContiguous, 0, 2000);
  kv.Write(kSeed, 0, 2000);
  const std::vector<TokenId> tokens = Tokens(2000);
  std::vector<Ticket> tickets;
  for (uint64_t at = 0; at < 2000; at += 8) {
    auto ticket = other.Append(MakeDelta(std::span(tokens).subspan(at, 8), kv.View(at, 8)));
    if (!ticket.ok()) {
      EXPECT_FAILS(ticket, StatusCode::kBusy);
      break;
    }
    tickets.push_back(*ticket);
  }
  // Small ones may still fit.
  for (uint64_t at = 0; at + 2 <= 2000; at += 2) {
    auto ticket = third.Append(MakeDelta(std::span(tokens).subspan(at, 2)));
    if (!ticket.ok()) break;
    tickets.push_back(*ticket);
  }
  for (uint64_t i = 0; i < 4; ++i) tickets.push_back(One(i));
  for (Ticket& ticket : tickets) EXPECT_OK(ticket.Wait());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 4));
}

// Appends that wait to be coalesced when the log fails get an error.
TEST(CoalescedAppendFaultTest, APoisonedLogIsTold) {
  io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.delta_batch_tokens = 4;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = TokenModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  ASSERT_OK_ASSIGN(Branch other, store.CreateBranch(id, {.name = "other"}));
  ASSERT_OK_ASSIGN(Ticket waits, chat.Append(MakeDelta(Tokens(1))));
  machine.disk->AddFault({.when =
                              [](const io::SimOperation& op) {
                                return op.op == io::SimOp::kSync &&
                                       op.path.find("/log/") != std::string::npos;
                              },
                          .error = EIO});
  AppendOptions durable;
  durable.durability = Durability::kPower;
  EXPECT_FALSE(other.AppendSync(MakeDelta(Tokens(2)), durable).ok());
  EXPECT_FAILS(store.poisoned(), StatusCode::kPoisoned);
  EXPECT_FAILS(waits.Wait(), StatusCode::kPoisoned);
  EXPECT_TRUE(waits.done());
}

// A log that waits for its next segment, which takes long to be made: what has a limit says so when
// that is over, and what was accepted goes on waiting.
TEST(CoalescedAppendFaultTest, ALimitEndsWhileTheLogHasNoRoom) {
  constexpr uint64_t kLimitNs = 1'000'000;
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.spare_segments_max = 1;
  options.delta_batch_tokens = 8;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
  ASSERT_OK(AppendSome(chat, model, 0, 2));
  ASSERT_OK(chat.AppendSync(MakeDelta(Tokens(2))));
  ASSERT_OK_ASSIGN(Ticket coalesced, chat.Append(MakeDelta(Tokens(1))));
  ASSERT_OK_ASSIGN(Branch talk, store.CreateBranch(id));
  ASSERT_OK(AppendSome(talk, model, 0, 2));
  ASSERT_OK(talk.AppendSync(MakeDelta(Tokens(2))));
  io::SimFault slow{.when =
                        [](const io::SimOperation& op) {
                          return op.op == io::SimOp::kAllocate &&
                                 op.path.find("/log/") != std::string::npos;
                        },
                    .persistent = true};
  slow.delay_ns = 60'000'000'000;
  machine.disk->AddFault(std::move(slow));
  ASSERT_OK_ASSIGN(Branch fills, store.CreateBranch(id));
  Status full;
  for (uint64_t at = 0; full.ok(); ++at) {
    KvSet kv(model, Layout::kContiguous, at, 1);
    full =
        fills.AppendSync(MakeDelta(Tokens(1), kv.View(at, 1)), {.timeout_ns = kLimitNs}).status();
  }
  ASSERT_FAILS(full, StatusCode::kDeadlineExceeded);
  // Smaller ones may still fit.
  ASSERT_OK_ASSIGN(Branch small, store.CreateBranch(id, {.durability = Durability::kMemory}));
  for (full = Status::Ok(); full.ok();) {
    full = small.AppendSync(MakeDelta(Tokens(1)), {.timeout_ns = kLimitNs}).status();
  }
  ASSERT_FAILS(full, StatusCode::kDeadlineExceeded);
  EXPECT_FAILS(chat.AppendSync(MakeDelta(Tokens(2)), {.timeout_ns = kLimitNs}),
               StatusCode::kDeadlineExceeded, "no room yet");
  EXPECT_FALSE(coalesced.done());
  KvSet part(model, Layout::kContiguous, 1, 3);  // Has one position that exists.
  EXPECT_FAILS(chat.Fill(*part.View(1, 3), {.timeout_ns = kLimitNs}), StatusCode::kDeadlineExceeded,
               "no room yet");
  EXPECT_FAILS(talk.Fill(*part.View(1, 3), {.timeout_ns = kLimitNs}), StatusCode::kDeadlineExceeded,
               "no room yet");
  machine.disk->ClearFaults();
  EXPECT_OK(coalesced.Wait());
  EXPECT_EQ(5u, *chat.length());
}

// A store that is full of one branch, of which nothing may go while it asks: four appends that wait
// to be coalesced, and one behind them that waits for room with them.
class CoalescedInAFullStore : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = TinyOptions();
    options.max_bytes = 4 << 20;
    options.evict = Evict::kKv;
    options.delta_batch_tokens = 16;
    options.delta_batch_wait_ns = 3'600'000'000'000;
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(id_));
    Status full;
    while (full.ok()) full = Turn(/*timeout_ns=*/UINT64_MAX);
    ASSERT_FAILS(full, StatusCode::kNoSpace);
  }
  // The result of the append behind.
  Status Turn(uint64_t timeout_ns) {
    const uint64_t begin = *chat_.length();
    KvSet kv(model_, Layout::kContiguous, begin, 8);
    kv.Write(kSeed, begin, begin + 8);
    const std::vector<TokenId> tokens = Tokens(8, begin + 1);
    const std::span<const TokenId> all = tokens;
    joined_.clear();
    for (uint64_t i = 0; i < 4; ++i) {
      auto ticket = chat_.Append(MakeDelta(all.subspan(i, 1), kv.View(begin + i, 1)));
      if (!ticket.ok()) return ticket.status();
      joined_.push_back(*ticket);
    }
    return chat_
        .AppendSync(MakeDelta(all.subspan(4), kv.View(begin + 4, 4)), {.timeout_ns = timeout_ns})
        .status();
  }

  void ExpectRefused() {
    ASSERT_EQ(4U, joined_.size());
    for (const Ticket& ticket : joined_) {
      ASSERT_TRUE(ticket.done());
      EXPECT_TRUE(Fails(ticket.status(), StatusCode::kNoSpace) ||
                  Fails(ticket.status(), StatusCode::kBusy, "room is being made"))
          << ticket.status().ToString();
    }
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  Store store_;
  ModelId id_{};
  Branch chat_;
  std::vector<Ticket> joined_;
};

TEST_F(CoalescedInAFullStore, AreRefusedWithTheOneBehindThem) {
  const uint64_t length = *chat_.length();
  EXPECT_FAILS(Turn(/*timeout_ns=*/UINT64_MAX), StatusCode::kNoSpace);
  ExpectRefused();
  EXPECT_EQ(length, *chat_.length());
}

// Others join while it waits for room, and come before it.
TEST_F(CoalescedInAFullStore, MayComeWhileTheOneBehindWaits) {
  ASSERT_OK_ASSIGN(Branch talk, store_.CreateBranch(id_));
  std::atomic<bool> over{false};
  auto joins = machine_.scheduler->StartThread("joins", [&] {
    const std::vector<TokenId> one = {7};
    while (!over) {
      (void)talk.Append({.tokens = one});
      machine_.scheduler->Sleep(20'000);
    }
  });
  auto fills = machine_.scheduler->StartThread("fills", [&] {
    while (!over) {
      auto branch = store_.CreateBranch(id_);
      for (uint64_t at = 0; at < 64 && branch.ok() && !over; at += 8) {
        (void)AppendSome(*branch, model_, at, 8);
      }
    }
  });
  const std::vector<TokenId> some = Tokens(1000);
  uint64_t before = 0;
  for (int i = 0; i < 300; ++i) {
    const auto length = talk.AppendSync({.tokens = some});
    if (!length.ok()) continue;
    EXPECT_GE(*length, before + some.size());
    before = *length;
  }
  over = true;
  joins.reset();
  fills.reset();
  EXPECT_GT(before, some.size());
}

TEST_F(CoalescedInAFullStore, ADraftBehindThemIsRefusedWithThem) {
  EXPECT_FAILS(Turn(/*timeout_ns=*/1), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(chat_.BeginAppend(1).ok());
  ExpectRefused();
}

TEST_F(CoalescedInAFullStore, GoOnWaitingWhenItsTimeIsOver) {
  EXPECT_FAILS(Turn(/*timeout_ns=*/1), StatusCode::kDeadlineExceeded);
  ASSERT_EQ(4U, joined_.size());
  for (const Ticket& ticket : joined_) EXPECT_FALSE(ticket.done());
}

}  // namespace
}  // namespace cairn::testing
