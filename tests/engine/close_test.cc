// SPDX-License-Identifier: Apache-2.0
//
// Property: Close finishes what was given to the store; afterwards, and in a child process, every
// call is refused and none crashes or hangs.
// Method: handles of every kind kept beyond Close; fork() with a store open.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/io/executor.h"
#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class CloseTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = TinyModel();
    id_ = Register(model_);
    chat_ = Create(id_, "chat");
    ASSERT_OK(AppendSome(chat_, model_, 0, 4));
  }
  ModelSpec model_;
  ModelId id_{};
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, CloseTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

// Returns the codes other than kInvalidState, for each call on `store` and `branch`.
std::string NotRefused(Store& store, Branch& branch, ModelId model) {
  const std::vector<TokenId> tokens = {1};
  KvSet kv(TinyModel(), Layout::kContiguous, 4, 1);
  WriteBatch batch;
  batch.Drop(branch);
  std::string wrong;
  const auto check = [&](const char* call, const Status& status) {
    if (status.code() != StatusCode::kInvalidState) {
      wrong += std::string(call) + ": " + status.ToString() + "\n";
    }
  };
  check("RegisterModel", store.RegisterModel(TinyModel()).status());
  check("GetModel", store.GetModel(model).status());
  check("CreateBranch", store.CreateBranch(model).status());
  check("FindBranch", store.FindBranch("chat").status());
  check("GetBranch", store.GetBranch(branch.id()).status());
  check("ListBranches", store.ListBranches("", "", 1).status());
  check("Write", store.Write(batch).status());
  check("Flush", store.Flush());
  check("NewCompletionQueue", store.NewCompletionQueue().status());
  check("Verify", store.Verify(VerifyLevel::kAll).status());
  check("poisoned", store.poisoned());
  check("Info", branch.Info().status());
  check("length", branch.length().status());
  check("durable_length", branch.durable_length().status());
  check("Path", branch.Path().status());
  check("Append", branch.Append(MakeDelta(tokens)).status());
  check("AppendSync", branch.AppendSync(MakeDelta(tokens)).status());
  check("BeginAppend", branch.BeginAppend(1).status());
  check("Fill", branch.Fill(*kv.View(4, 1)));
  check("ForkAt", branch.ForkAt(0, {}).status());
  check("Rewind", branch.Rewind(0));
  check("Rename", branch.Rename("x"));
  check("Drop", branch.Drop());
  check("Restore", branch.Restore({}).status());
  check("RestoreAsync", branch.RestoreAsync({}).status());
  check("ReadTokens", branch.ReadTokens(0, 1).status());
  check("SamplerAt", branch.SamplerAt(0).status());
  check("MetadataAt", branch.MetadataAt(0).status());
  check("Spans", branch.Spans(0, 1).status());
  return wrong;
}

TEST_P(CloseTest, EveryCallAfterCloseIsRefused) {
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(2));
  ASSERT_OK_ASSIGN(CompletionQueue queue, store_.NewCompletionQueue());
  ASSERT_OK(store_.Close());
  EXPECT_EQ("", NotRefused(store_, chat_, id_));
  EXPECT_FAILS(draft.Commit(MakeDelta(Tokens(1)), {}), StatusCode::kInvalidState);
  EXPECT_TRUE(queue.Drain().empty());
  static_cast<void>(store_.Metrics());
  static_cast<void>(store_.Namespaces());
  EXPECT_OK(store_.Close());
}

TEST_P(CloseTest, CloseFinishesEveryTicket) {
  const std::vector<TokenId> tokens = Tokens(2);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 50; ++i) {
    AppendOptions options;
    options.durability = static_cast<Durability>(i % 3);
    ASSERT_OK_ASSIGN(Ticket ticket,
                     WhileBusy(store_, [&] { return chat_.Append(MakeDelta(tokens), options); }));
    tickets.push_back(ticket);
  }
  ASSERT_OK(store_.Close());
  for (const Ticket& ticket : tickets) EXPECT_OK(ticket.status());
  Reopen();
  EXPECT_EQ(104u, *Find("chat").length());
}

TEST_P(CloseTest, CloseFinishesBorrowedAndCoalescedAppends) {
  Options options = world_->options();
  options.delta_batch_tokens = 8;
  options.delta_batch_wait_ns = 3'600'000'000'000;
  Reopen(options);
  const ModelSpec wide = WideModel();
  Branch branch = Create(Register(wide), "wide");
  KvSet kv(wide, Layout::kContiguous, 0, 300);
  kv.Write(kSeed, 0, 300);
  const std::vector<TokenId> tokens = Tokens(300);
  ASSERT_OK_ASSIGN(Ticket large, branch.Append(MakeDelta(tokens, kv.View(0, 300))));
  chat_ = Find("chat");
  ASSERT_OK_ASSIGN(Ticket coalesced, chat_.Append(MakeDelta(std::span(tokens).first(1))));
  ASSERT_OK(store_.Close());
  EXPECT_OK(large.status());
  EXPECT_OK(coalesced.status());
  Reopen();
  EXPECT_TRUE(HasKv(Find("wide"), wide, 0, 300));
  EXPECT_EQ(5u, *Find("chat").length());
}

TEST_P(CloseTest, DestructionClosesToo) {
  { Store gone = std::move(store_); }
  store_ = Store();
  Reopen();
  EXPECT_TRUE(HasKv(Find("chat"), model_, 0, 4));
}

TEST_P(CloseTest, AChildAfterForkIsRefusedAndTheParentGoesOn) {
  if (GetParam() == "simulated") GTEST_SKIP() << "a process of one thread and one id";
  ASSERT_OK_ASSIGN(Ticket ticket, chat_.Append(MakeDelta(Tokens(1))));
  ASSERT_OK(ticket.Wait());
  const pid_t child = fork();
  if (child == 0) {
    const std::string wrong = NotRefused(store_, chat_, id_);
    const bool closed = store_.Close().code() == StatusCode::kInvalidState;
    if (!wrong.empty()) {
      const ssize_t ignored = write(2, wrong.data(), wrong.size());
      static_cast<void>(ignored);
    }
    store_ = Store();
    chat_ = Branch();
    _exit(wrong.empty() && closed ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(1)))) << "the parent is as it was";
  Reopen();
  EXPECT_EQ(6u, *Find("chat").length());
}

// It returns when the store is closed, not before.
TEST_P(CloseTest, ASecondCloseWaitsForTheFirst) {
  io::Scheduler& scheduler = *world_->world().scheduler;
  for (int round = 0; round < 20; ++round) {
    ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(1)), {.durability = Durability::kMemory}));
    io::Turn opening(scheduler);
    const auto close = [&] {
      EXPECT_OK(store_.core()->Close());
      const io::Turn::Holder turn(&opening);
      EXPECT_OK(world_->Open());
    };
    {
      const auto first = scheduler.StartThread("first", close);
      const auto second = scheduler.StartThread("second", close);
    }
    Reopen();
    chat_ = Find("chat");
  }
}

// Calls from many threads while another closes: each is done or refused.
TEST_P(CloseTest, ClosingWhileOthersWork) {
  if (GetParam() == "simulated") GTEST_SKIP() << "real threads only";
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    std::atomic<bool> go{false};
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        while (!go.load()) std::this_thread::yield();
        Branch branch(store_.core(), chat_.id());
        while (true) {
          Status status = i == 0   ? branch.AppendSync(MakeDelta(std::vector<TokenId>{1})).status()
                          : i == 1 ? branch.Restore({}).status()
                                   : branch.RestoreAsync({}).status();
          if (status.ok()) continue;
          EXPECT_EQ(StatusCode::kInvalidState, status.code()) << status.ToString();
          break;
        }
      });
    }
    go = true;
    world_->world().scheduler->Sleep(3'000'000);
    EXPECT_OK(store_.Close());
    for (std::thread& thread : threads) thread.join();
    Reopen();
    chat_ = Find("chat");
  }
}

}  // namespace
}  // namespace cairn::testing
