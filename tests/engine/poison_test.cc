// SPDX-License-Identifier: Apache-2.0
//
// Property: an error on a write or sync of the log poisons the store and is never guessed away:
// writes are refused, what was in flight has an unknown outcome, reads show the last acknowledged
// state, the listener hears it once, and opening again recovers.
// Method: the simulated disk fails the n-th operation on a segment, for several n and errors.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

bool OnSegment(const io::SimOperation& operation) {
  return operation.path.find("/log/") != std::string::npos;
}

class PoisonTest : public ::testing::TestWithParam<io::SimOp> {
 protected:
  void SetUp() override {
    sim_ = std::make_unique<io::SimWorld>(io::MakeSimWorld(1));
    options_ = TinyOptions();
    options_.world = std::make_shared<io::World>(sim_->world());
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_poisoned = [this](const Status& cause) {
      ++told_;
      cause_ = cause;
    };
    Open();
    auto id = store_.RegisterModel(model_);
    ASSERT_OK(id);
    auto chat = store_.CreateBranch(*id, {.name = "chat"});
    ASSERT_OK(chat);
    chat_ = *chat;
    ASSERT_OK(AppendSome(chat_, model_, 0, 6, kSeed, Durability::kPower));
  }

  void Open() {
    auto opened = Store::Open("/store", options_);
    ASSERT_OK(opened);
    store_ = std::move(*opened);
  }

  // From now on writes (or syncs) of the log fail.
  void Break(io::SimOp op) {
    io::SimFault fault;
    fault.when = [op](const io::SimOperation& operation) {
      const bool sync =
          operation.op == io::SimOp::kSync || operation.op == io::SimOp::kDurableWrite;
      const bool write =
          operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite;
      return OnSegment(operation) && (op == io::SimOp::kSync ? sync : write);
    };
    fault.error = EIO;
    fault.persistent = true;
    sim_->disk->AddFault(std::move(fault));
  }

  std::unique_ptr<io::SimWorld> sim_;
  Options options_;
  const ModelSpec model_ = TinyModel();
  Store store_;
  Branch chat_;
  int told_ = 0;
  Status cause_;
};

INSTANTIATE_TEST_SUITE_P(Operations, PoisonTest,
                         ::testing::Values(io::SimOp::kWrite, io::SimOp::kSync),
                         [](const auto& test) {
                           return test.param == io::SimOp::kWrite ? "Write" : "Sync";
                         });

TEST_P(PoisonTest, EverythingAsPromised) {
  Break(GetParam());
  const std::vector<TokenId> tokens = Tokens(2);
  AppendOptions options;
  options.durability = Durability::kPower;
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) {
    auto ticket = chat_.Append(MakeDelta(tokens), options);
    if (ticket.ok()) tickets.push_back(*ticket);
  }
  ASSERT_FALSE(tickets.empty());
  for (Ticket& ticket : tickets) {
    EXPECT_FAILS(ticket.Wait(), StatusCode::kUnknownOutcome, "reopen");
  }
  EXPECT_FAILS(store_.poisoned(), StatusCode::kPoisoned, "log/");
  EXPECT_EQ(1, told_);
  EXPECT_NE(std::string_view::npos, cause_.message().find("log/")) << cause_.ToString();

  EXPECT_FAILS(chat_.Append(MakeDelta(tokens)), StatusCode::kPoisoned);
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens)), StatusCode::kPoisoned);
  EXPECT_FAILS(chat_.Rewind(1), StatusCode::kPoisoned);
  EXPECT_FAILS(chat_.Drop(), StatusCode::kPoisoned);
  EXPECT_FAILS(chat_.ForkAt(1, {}), StatusCode::kPoisoned);
  EXPECT_FAILS(chat_.BeginAppend(1), StatusCode::kPoisoned);
  EXPECT_FAILS(store_.RegisterModel(TinyModel("new")), StatusCode::kPoisoned);
  EXPECT_FAILS(store_.Flush(), StatusCode::kPoisoned);

  // A failed sync leaves what was written acknowledged as written.
  const uint64_t length = *chat_.length();
  if (GetParam() == io::SimOp::kWrite) {
    EXPECT_EQ(6u, length);
  } else {
    EXPECT_EQ(6u, *chat_.durable_length());
  }
  EXPECT_TRUE(HasKv(chat_, model_, 0, 6)) << "reads go on";
  EXPECT_EQ(length, chat_.ReadTokens(0, length)->size());
  EXPECT_OK(store_.Verify(VerifyLevel::kAll));
  EXPECT_EQ(1, told_) << "once";

  sim_->disk->ClearFaults();
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(tokens)), StatusCode::kPoisoned) << "never retried";
  EXPECT_FAILS(store_.Close(), StatusCode::kPoisoned);
  EXPECT_FAILS(store_.Close(), StatusCode::kPoisoned) << "what the first one said";
  Open();
  ASSERT_OK_ASSIGN(chat_, store_.FindBranch("chat"));
  const uint64_t recovered = *chat_.length();
  EXPECT_GE(recovered, 6u);
  EXPECT_EQ(0u, recovered % 2);
  EXPECT_TRUE(HasKv(chat_, model_, 0, 6));
  options.expected_length = recovered;
  EXPECT_OK(chat_.AppendSync(MakeDelta(tokens), options)) << "expected_length settles it";
}

// Blocking calls that are on their way when it happens. The call that registered the model has not
// waited, so one that finds it registered waits, and gets the error.
TEST_P(PoisonTest, AModelThatWasRegisteredIsNotSafeYet) {
  const ModelSpec model = WideModel();
  ASSERT_OK(store_.RegisterModel(model, Durability::kMemory));
  Break(GetParam());
  EXPECT_FALSE(store_.RegisterModel(model, Durability::kPower).ok());
  EXPECT_EQ(1, told_);
}

TEST_P(PoisonTest, BlockingCallsSayWhatTheyKnow) {
  Break(GetParam());
  AppendOptions options;
  options.durability = Durability::kPower;
  const Status status = chat_.AppendSync(MakeDelta(Tokens(2)), options).status();
  EXPECT_TRUE(status.code() == StatusCode::kUnknownOutcome ||
              status.code() == StatusCode::kPoisoned)
      << status.ToString();
  EXPECT_EQ(1, told_);
}

// The disk lied about a write, and nobody can read what was acknowledged: it is not taken out of
// memory for that.
TEST_P(PoisonTest, WhatTheDiskLostStaysInMemory) {
  std::string event;
  options_.listener->on_event = [&](const std::string& line) { event = line; };
  io::SimFault lie;
  lie.when = [](const io::SimOperation& operation) {
    return OnSegment(operation) &&
           (operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite);
  };
  lie.lost = true;
  sim_->disk->AddFault(std::move(lie));
  ASSERT_OK(AppendSome(chat_, model_, 6, 4));
  Break(GetParam());
  AppendOptions options;
  options.durability = Durability::kPower;
  EXPECT_FAILS(chat_.AppendSync(MakeDelta(Tokens(2)), options), StatusCode::kUnknownOutcome);
  EXPECT_NE(std::string::npos, event.find("but 4 was acknowledged")) << event;
  EXPECT_GE(*chat_.length(), 10u);
  EXPECT_TRUE(HasKv(chat_, model_, 0, 10));
}

// Each single operation on the log fails in turn; the store is poisoned or does not care, and what
// was acknowledged survives.
TEST(PoisonSweepTest, EveryOperationOnTheLogFailsOnce) {
  const ModelSpec model = WideModel();
  for (uint64_t at = 0; at < 60; ++at) {
    SCOPED_TRACE("operation " + std::to_string(at));
    io::SimWorld sim = io::MakeSimWorld(at);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(sim.world());
    uint64_t acknowledged = 0;
    {
      ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
      ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
      ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
      uint64_t count = 0;
      int refused = 0;
      io::SimFault fault;
      fault.when = [&count, at](const io::SimOperation& operation) {
        return operation.changes_world() && OnSegment(operation) && count++ == at;
      };
      fault.error = EIO;
      sim.disk->AddFault(std::move(fault));
      for (uint64_t i = 0; i < 30; ++i) {
        const auto appended = AppendSome(chat, model, 4 * i, 4, kSeed,
                                         i % 2 == 0 ? Durability::kPower : Durability::kProcess);
        if (!appended.ok()) {
          const StatusCode code = appended.status().code();
          // No new segment could be made: nothing is lost, and the next attempt finds one.
          if ((code == StatusCode::kNoSpace || code == StatusCode::kIoError) && ++refused < 100) {
            sim.scheduler->Sleep(100'000'000);
            --i;
            continue;
          }
          EXPECT_TRUE(code == StatusCode::kPoisoned || code == StatusCode::kUnknownOutcome)
              << appended.status().ToString();
          break;
        }
        acknowledged = *appended;
      }
      EXPECT_GE(*chat.length(), acknowledged);
      EXPECT_TRUE(HasKv(chat, model, 0, acknowledged));
      sim.disk->ClearFaults();
      static_cast<void>(store.Close());
    }
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(Branch chat, store.FindBranch("chat"));
    EXPECT_GE(*chat.length(), acknowledged);
    EXPECT_TRUE(HasKv(chat, model, 0, *chat.length()));
    EXPECT_OK(AppendSome(chat, model, *chat.length(), 4));
  }
}

using FatalDeathTest = PoisonTest;
INSTANTIATE_TEST_SUITE_P(Operations, FatalDeathTest, ::testing::Values(io::SimOp::kWrite));

TEST_P(FatalDeathTest, OnFatalAbortEndsTheProcess) {
  EXPECT_DEATH(
      {
        store_ = Store();
        options_.on_fatal = FatalAction::kAbort;
        Open();
        chat_ = *store_.FindBranch("chat");
        Break(GetParam());
        static_cast<void>(chat_.AppendSync(MakeDelta(Tokens(1))));
      },
      "on_fatal");
}

// It goes in steps, each a record of its own.
TEST(PoisonOfAFill, WhicheverStepMeetsIt) {
  constexpr uint64_t kTokens = 400;
  const ModelSpec model = WideModel();
  int failed = 0;
  for (uint64_t nth = 1; nth <= 40; ++nth) {
    const io::SimWorld machine = io::MakeSimWorld(nth);
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id));
    ASSERT_OK(chat.AppendSync({.tokens = Tokens(kTokens)}));
    uint64_t writes = 0;
    machine.disk->set_on_operation([&](const io::SimOperation& operation) {
      const bool write =
          operation.op == io::SimOp::kWrite || operation.op == io::SimOp::kDurableWrite;
      if (!write || !OnSegment(operation) || ++writes != nth) return;
      io::SimFault fault;
      fault.when = OnSegment;
      fault.error = EIO;
      fault.persistent = true;
      machine.disk->AddFault(std::move(fault));
    });
    KvSet kv(model, Layout::kContiguous, 0, kTokens);
    kv.Write(kSeed, 0, kTokens);
    const Status filled = chat.Fill(*kv.View(0, kTokens), {.durability = Durability::kMemory});
    const Status flushed = filled.ok() ? store.Flush() : filled;
    if (!flushed.ok()) {
      ++failed;
      // Where no other segment can be made nothing of what was written is in doubt.
      if (store.poisoned().ok()) {
        EXPECT_FAILS(flushed, StatusCode::kIoError, "another log segment");
      } else {
        EXPECT_TRUE(flushed.code() == StatusCode::kPoisoned ||
                    flushed.code() == StatusCode::kUnknownOutcome)
            << flushed.ToString();
      }
    }
    machine.disk->set_on_operation({});
  }
  EXPECT_GT(failed, 3);
}

}  // namespace
}  // namespace cairn::testing
