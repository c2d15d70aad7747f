// SPDX-License-Identifier: Apache-2.0
//
// The bug: an append that was accepted to be coalesced with others, in the moment between another
// caller's look for such and the change that one made to the branch, was overtaken by it and then
// lost: its ticket ended as kConflict. Method: coalesced appends, and changes of each kind, to one
// branch from two threads.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/support/status.h"
#include "tests/support/test_store.h"

namespace cairn::testing {
namespace {

const AppendOptions kInMemory{.durability = Durability::kMemory};

class AnAppendToBeJoinedWasOvertaken : public ::testing::Test {
 protected:
  void SetUp() override {
    Options options = world_->options();
    options.delta_batch_tokens = 4;
    ASSERT_OK_ASSIGN(store_, world_->Open(options));
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(model));
  }
  // Beside appends that are coalesced. The tokens of these.
  uint64_t Beside(const std::function<void()>& change, int times) {
    std::atomic<bool> stop{false};
    uint64_t joined = 0;
    Status lost;
    std::thread other([&] {
      while (!stop && lost.ok()) {
        auto ticket = chat_.Append({.tokens = one_}, kInMemory);
        if (!ticket.ok()) continue;
        lost = ticket->Wait();
        joined += lost.ok() ? 1 : 0;
      }
    });
    for (int i = 0; i < times; ++i) change();
    stop = true;
    other.join();
    EXPECT_OK(lost);
    return joined;
  }

  const std::unique_ptr<TestWorld> world_ = TestWorld::Make("threads");
  const std::vector<TokenId> one_ = Tokens(1), two_ = Tokens(2);
  Store store_;
  Branch chat_;
};

TEST_F(AnAppendToBeJoinedWasOvertaken, ByAppends) {
  uint64_t blocking = 0;
  const uint64_t joined = Beside(
      [&] { blocking += chat_.AppendSync({.tokens = two_}, kInMemory).ok() ? 2 : 0; }, 50'000);
  EXPECT_EQ(joined + blocking, *chat_.length());
}

TEST_F(AnAppendToBeJoinedWasOvertaken, ByBatches) {
  uint64_t batched = 0;
  const uint64_t joined = Beside(
      [&] {
        WriteBatch batch;
        batch.Append(chat_, {.tokens = two_});
        auto written = store_.Write(batch, kInMemory);
        batched += written.ok() && written->ticket.Wait().ok() ? 2 : 0;
      },
      50'000);
  EXPECT_EQ(joined + batched, *chat_.length());
}

TEST_F(AnAppendToBeJoinedWasOvertaken, ByRewinds) {
  const uint64_t joined = Beside([&] { EXPECT_OK(chat_.Rewind(0, Durability::kMemory)); }, 50'000);
  EXPECT_LE(*chat_.length(), joined);
}

}  // namespace
}  // namespace cairn::testing
