// SPDX-License-Identifier: Apache-2.0
//
// The bug: the time of a batch grew with more than the square of its ops, all of it under the
// commit lock: 10,000 creates took 4.5 s, 30,000 took 95 s, and other appends waited. So did the
// replay of its record.
// Method: batches of a number of ops and of eight times as many; the processor time of the thread
// that writes them and of the one that replays them, to which neighbours on the machine add little.
#include <time.h>

#include <algorithm>
#include <functional>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr size_t kFew = kMaxBatchOps / 8;
constexpr int kTries = 3;  // The fastest counts.

double ThreadSeconds() {
  timespec now{};
  EXPECT_EQ(0, clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class ABatchTookTheSquareOfItsOps : public ::testing::Test {
 protected:
  using Add = std::function<void(WriteBatch*)>;  // One op.

  void SetUp() override {
    Options options;
    options.create_if_missing = true;
    ASSERT_OK_ASSIGN(store_, Store::Open(directory_.path() + "/store", options));
    ASSERT_OK_ASSIGN(model_, store_.RegisterModel(TokenModel()));
  }

  double WriteSeconds(size_t ops, const Add& add) {
    double fastest = 1e9;
    for (int i = 0; i < kTries; ++i) {
      WriteBatch batch;
      const double start = ThreadSeconds();
      for (size_t op = 0; op < ops; ++op) add(&batch);
      const auto written = store_.Write(batch);
      fastest = std::min(fastest, ThreadSeconds() - start);
      EXPECT_OK(written);
    }
    EXPECT_OK(store_.Flush());
    return fastest;
  }

  void ExpectLinear(const Add& add) {
    const double few = WriteSeconds(kFew, add);
    const double many = WriteSeconds(kMaxBatchOps, add);
    EXPECT_LT(many, 3 * 8 * few) << few << " s, then " << many << " s";  // The square: 8 * 8.
  }

  std::string NewName() { return "n" + std::to_string(names_++); }

  TempDirectory directory_;
  Store store_;
  ModelId model_{};
  uint64_t names_ = 0;
};

TEST_F(ABatchTookTheSquareOfItsOps, OfCreates) {
  ExpectLinear([&](WriteBatch* batch) { batch->Create(model_, {.name = NewName()}); });
}

// All of them leave one node, at its end, so that a rewind finds what reaches beyond.
TEST_F(ABatchTookTheSquareOfItsOps, OfForksAppendsRewindsAndDrops) {
  const std::vector<TokenId> tokens = Tokens(4);
  ASSERT_OK_ASSIGN(Branch chat, store_.CreateBranch(model_));
  ASSERT_OK(chat.AppendSync(MakeDelta(tokens)));
  int step = 0, fork = 0;
  ExpectLinear([&](WriteBatch* batch) {
    switch (batch->ops().empty() ? (step = 0) : ++step % 4) {
      case 0: fork = batch->Fork(chat, 4, {.name = NewName()}); break;
      case 1: batch->Append(fork, MakeDelta(tokens)); break;
      case 2: batch->Rewind(fork, 6); break;
      default: (step % 8 == 7 ? batch->Drop(fork) : batch->Rename(fork, NewName())); break;
    }
  });
}

// A reader replays what the index does not have, as an opening after a crash does.
TEST_F(ABatchTookTheSquareOfItsOps, OfItsReplay) {
  const auto replay_seconds = [&] {
    double fastest = 1e9;
    for (int i = 0; i < kTries; ++i) {
      Options options;
      options.read_only = true;
      const double start = ThreadSeconds();
      const auto reader = Store::Open(directory_.path() + "/store", options);
      fastest = std::min(fastest, ThreadSeconds() - start);
      EXPECT_OK(reader);
    }
    return fastest;
  };
  ASSERT_OK(store_.PauseBackground());  // The index gets nothing.
  const Add create = [&](WriteBatch* batch) { batch->Create(model_, {.name = NewName()}); };
  const double none = replay_seconds();
  WriteSeconds(kFew, create);
  const double few = replay_seconds() - none;
  WriteSeconds(kMaxBatchOps, create);
  const double many = replay_seconds() - none;
  EXPECT_LT(many, 3 * 9 * few) << few << " s, then " << many << " s";  // The square: 9 * 9.
}

}  // namespace
}  // namespace cairn::testing
