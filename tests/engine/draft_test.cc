// SPDX-License-Identifier: Apache-2.0
//
// Property: a draft collects KV in any order from any thread, and commits exactly the positions
// that were accepted; an aborted one leaves nothing. Method: drafts put backwards, in pieces, by
// threads; committed with fewer tokens; aborted.
#include <thread>

#include "engine/store/store_core.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

class DraftTest : public WorldTest {
 protected:
  void SetUp() override {
    WorldTest::SetUp();
    if (IsSkipped()) return;
    model_ = HybridModel();
    chat_ = Create(Register(model_), "chat");
    ASSERT_OK(AppendSome(chat_, model_, 0, 5));
  }
  // Puts positions [begin, end) of one layer.
  Status Put(Draft& draft, uint32_t group, uint32_t layer, uint64_t begin, uint64_t end) {
    KvPool pool(model_.groups[group], group, Layout::kNhd, begin, end - begin);
    pool.Write(kSeed, begin, end);
    return draft.Put(layer, pool.View(begin, end - begin, layer, 1));
  }
  void PutAll(Draft& draft, uint64_t begin, uint64_t end) {
    for (uint32_t group = static_cast<uint32_t>(model_.groups.size()); group-- > 0;) {
      for (uint32_t layer = model_.groups[group].layers; layer-- > 0;) {
        ASSERT_OK(Put(draft, group, layer, begin, end));
      }
    }
  }
  Status Commit(Draft& draft, std::span<const TokenId> tokens, const AppendOptions& options = {}) {
    auto ticket = draft.Commit(MakeDelta(tokens), options);
    return ticket.ok() ? ticket->Wait() : ticket.status();
  }
  ModelSpec model_;
  Branch chat_;
};

INSTANTIATE_TEST_SUITE_P(Worlds, DraftTest, ::testing::Values("memory", "threads", "simulated"),
                         NameOf);

TEST_P(DraftTest, AnyOrderAndFewerThanStaged) {
  const std::vector<TokenId> tokens = Tokens(8);
  for (const uint64_t accepted : {8u, 3u, 1u}) {
    const uint64_t length = *chat_.length();
    ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(8));
    PutAll(draft, length, length + 8);
    ASSERT_OK(Commit(draft, std::span(tokens).first(accepted)));
    EXPECT_EQ(length + accepted, *chat_.length());
    EXPECT_TRUE(HasKv(chat_, model_, 0, length + accepted));
    EXPECT_FAILS(draft.Put(0, {}), StatusCode::kInvalidState) << "a committed draft is over";
  }
  Reopen();
  EXPECT_TRUE(HasKv(Find("chat"), model_, 0, 17));
}

TEST_P(DraftTest, PiecesRepeatsAndOverwrites) {
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(6));
  EXPECT_FAILS(Put(draft, 0, 0, 6, 7), StatusCode::kInvalidArgument, "goes on at 5");
  EXPECT_FAILS(Put(draft, 0, 0, 4, 7), StatusCode::kInvalidArgument, "goes on at 5");
  EXPECT_FAILS(Put(draft, 0, 0, 5, 12), StatusCode::kInvalidArgument, "ends at 11");
  KvPool pool(model_.groups[0], 0, Layout::kNhd, 5, 6);
  EXPECT_FAILS(draft.Put(2, pool.View(5, 6, 0, 1)), StatusCode::kInvalidArgument,
               "layer 2 of group 0");
  EXPECT_FAILS(draft.Put(0, pool.View(5, 6, 0, 2)), StatusCode::kInvalidArgument, "one layer base");
  GroupView wrong = pool.View(5, 6, 0, 1);
  wrong.group = 9;
  EXPECT_FAILS(draft.Put(0, wrong), StatusCode::kInvalidArgument, "group 9");
  // A first guess, then the right one over it.
  pool.Write(12345, 5, 11);
  ASSERT_OK(draft.Put(0, pool.View(5, 6, 0, 1)));
  PutAll(draft, 5, 7);
  PutAll(draft, 7, 11);
  PutAll(draft, 5, 11);
  ASSERT_OK(Commit(draft, Tokens(6)));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 11));
}

TEST_P(DraftTest, KvCountsAsFarAsAllLayersWerePut) {
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(4));
  for (uint32_t layer = 0; layer < model_.groups[0].layers; ++layer) {
    ASSERT_OK(Put(draft, 0, layer, 5, 9));
  }
  ASSERT_OK(Put(draft, 1, 0, 5, 9));
  ASSERT_OK(Put(draft, 1, 1, 5, 7));
  ASSERT_OK(Put(draft, 1, 2, 5, 6));
  ASSERT_OK(Put(draft, 2, 0, 5, 9));
  ASSERT_OK(Commit(draft, Tokens(4)));
  EXPECT_EQ((std::vector<uint64_t>{9, 6, 5, 5}), chat_.Info()->kv_lengths);
  // The next draft begins where the KV lags.
  ASSERT_OK_ASSIGN(Draft next, chat_.BeginAppend(1));
  ASSERT_OK(Put(next, 0, 0, 9, 10));
  ASSERT_OK(Put(next, 0, 1, 9, 10));
  for (uint32_t layer = 0; layer < 3; ++layer) ASSERT_OK(Put(next, 1, layer, 6, 10));
  for (uint32_t layer = 0; layer < 2; ++layer) ASSERT_OK(Put(next, 2, layer, 5, 10));
  ASSERT_OK(Put(next, 3, 0, 5, 10));
  ASSERT_OK(Commit(next, Tokens(1)));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 10));
}

TEST_P(DraftTest, AbortAndDestructionLeaveNothing) {
  {
    ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(4));
    PutAll(draft, 5, 9);
    draft.Abort();
    EXPECT_FAILS(Commit(draft, Tokens(4)), StatusCode::kInvalidState);
    ASSERT_OK_ASSIGN(Draft copy, chat_.BeginAppend(4));
    Draft same = copy;
    same.Abort();
    EXPECT_FAILS(Put(copy, 0, 0, 5, 9), StatusCode::kInvalidState, "aborted");
    EXPECT_FAILS(Commit(copy, Tokens(4)), StatusCode::kInvalidState, "aborted");
    ASSERT_OK_ASSIGN(Draft forgotten, chat_.BeginAppend(4));
    PutAll(forgotten, 5, 9);
  }
  EXPECT_EQ(5u, *chat_.length());
  EXPECT_EQ(0u, store_.core()->staging().used_bytes());
}

TEST_P(DraftTest, ACommitOnAChangedBranchIsRefused) {
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(2));
  PutAll(draft, 5, 7);
  ASSERT_OK(AppendSome(chat_, model_, 5, 1));
  AppendOptions options;
  options.expected_length = 5;
  EXPECT_FAILS(Commit(draft, Tokens(2), options), StatusCode::kConflict, "6 tokens");
  EXPECT_EQ(6u, *chat_.length());
  ASSERT_OK_ASSIGN(Draft too_many, chat_.BeginAppend(2));
  EXPECT_FAILS(Commit(too_many, Tokens(3)), StatusCode::kInvalidArgument, "3 tokens");
  EXPECT_FAILS(chat_.BeginAppend(0), StatusCode::kInvalidArgument, "positions is 0");
}

TEST_P(DraftTest, StagingMemoryIsBounded) {
  const uint64_t share = Options().max_memory_bytes / 4;
  const uint64_t positions = share / model_.token_bytes() / 2;
  ASSERT_OK_ASSIGN(Draft first, chat_.BeginAppend(positions));
  ASSERT_OK_ASSIGN(Draft second, chat_.BeginAppend(positions));
  EXPECT_FAILS(chat_.BeginAppend(positions), StatusCode::kBusy, "staging memory");
  first.Abort();
  ASSERT_OK(chat_.BeginAppend(positions));
}

TEST_P(DraftTest, ADraftOfMorePositionsThanThereAreIsRefused) {
  ASSERT_OK(chat_.AppendSync(MakeDelta(Tokens(3))));  // KV lags, and is staged as well.
  EXPECT_FAILS(chat_.BeginAppend(UINT64_MAX), StatusCode::kInvalidArgument,
               "positions is 18446744073709551615");
}

TEST_P(DraftTest, NoMemoryToStage) {
  struct Memory {
    Allocator from = Allocator::Default();
    std::atomic<bool> refuse{false};
  } memory;
  Options options = world_->options();
  options.allocator = {.allocate = [](void* context, size_t bytes, size_t alignment) -> void* {
                         auto* self = static_cast<Memory*>(context);
                         if (self->refuse.load()) return nullptr;
                         return self->from.allocate(self->from.context, bytes, alignment);
                       },
                       .deallocate =
                           [](void* context, void* at, size_t bytes, size_t alignment) {
                             auto* self = static_cast<Memory*>(context);
                             self->from.deallocate(self->from.context, at, bytes, alignment);
                           },
                       .context = &memory};
  Reopen(options);
  chat_ = Find("chat");
  ASSERT_OK(chat_.length());
  memory.refuse = true;
  EXPECT_FAILS(chat_.BeginAppend(2), StatusCode::kOutOfMemory, "staging memory of ");
  memory.refuse = false;
  EXPECT_EQ(0u, store_.core()->staging().used_bytes());
  { ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(2)); }
  ASSERT_OK(store_.Close());
  chat_ = Branch();
  store_ = Store();
}

TEST_P(DraftTest, ThreadsPutLayersAtOnce) {
  if (GetParam() == "simulated") GTEST_SKIP() << "real threads only";
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(40));
  std::vector<std::thread> threads;
  for (uint32_t group = 0; group < model_.groups.size(); ++group) {
    for (uint32_t layer = 0; layer < model_.groups[group].layers; ++layer) {
      threads.emplace_back([&, group, layer] {
        for (uint64_t at = 5; at < 45; at += 8) EXPECT_OK(Put(draft, group, layer, at, at + 8));
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(Commit(draft, Tokens(40)));
  EXPECT_TRUE(HasKv(chat_, model_, 0, 45));
}

// Larger than what is copied in the call: the draft's own memory is borrowed until released.
TEST_P(DraftTest, LargeDrafts) {
  model_ = WideModel();
  chat_ = Create(Register(model_), "wide");
  ASSERT_OK_ASSIGN(Draft draft, chat_.BeginAppend(400));
  PutAll(draft, 0, 400);
  const std::vector<TokenId> tokens = Tokens(390);
  ASSERT_OK_ASSIGN(Ticket ticket, draft.Commit(MakeDelta(tokens), {}));
  draft = Draft();
  ASSERT_OK(ticket.Wait());
  EXPECT_TRUE(HasKv(chat_, model_, 0, 390));
  EXPECT_EQ(tokens, *chat_.ReadTokens(0, 390));
}

}  // namespace
}  // namespace cairn::testing
