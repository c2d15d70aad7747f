// SPDX-License-Identifier: Apache-2.0
//
// The bug: log_bytes_max bounded nothing. Where appends came faster than the log was sealed it grew
// until max_bytes or the disk ended it: 7.6 GiB at a limit of 1 GiB. Appends are slowed as it nears
// the limit and wait at it, unless nobody gives anything back.
// Method: a disk on which tables take their time, and one thread that appends as fast as it can.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kTokensEach = 8;  // 64 KiB of KV.

class TheLogOutgrewItsLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = TinyOptions();
    options_.log_bytes_max = kLimit;
    options_.world = std::make_shared<io::World>(machine_.world());
    options_.listener = std::make_shared<EventListener>();
    options_.listener->on_event = [this](const std::string& line) {
      told_ += line.find("appends are slowed") != std::string::npos;
    };
    Open();
    ASSERT_OK_ASSIGN(id_, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(branch_, store_.CreateBranch(id_, {.name = "chat"}));
    ASSERT_OK_ASSIGN(filler_, store_.CreateBranch(id_, {.name = "filler"}));
  }
  void Open() { ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_)); }
  // Each write of a table takes so long.
  void SlowTables(uint64_t delay_ns) {
    machine_.disk->AddFault({.when =
                                 [](const io::SimOperation& op) {
                                   return op.op == io::SimOp::kWrite &&
                                          op.path.find("/tables/") != std::string::npos;
                                 },
                             .delay_ns = delay_ns,
                             .persistent = true});
  }
  Status Append(uint64_t timeout_ns = UINT64_MAX, Durability durability = Durability::kMemory) {
    const uint64_t length = *branch_.length();
    KvSet kv(model_, Layout::kContiguous, length, kTokensEach);
    kv.Write(kSeed, length, length + kTokensEach);
    return branch_
        .AppendSync(MakeDelta(tokens_, kv.View(length, kTokensEach)),
                    {.durability = durability, .timeout_ns = timeout_ns})
        .status();
  }
  uint64_t LogBytes() {
    const StoreMetrics metrics = store_.Metrics();
    return metrics.log_segments * metrics.segment_bytes;
  }
  // Without a wait, until an append would; then with tokens alone, so that not even these fit.
  void FillUp() {
    while (Append(/*timeout_ns=*/kSecond).ok() && LogBytes() <= 2 * kLimit) {
    }
    const AppendOptions options{.durability = Durability::kMemory, .timeout_ns = kSecond};
    while (filler_.AppendSync(MakeDelta(tokens_), options).ok() && LogBytes() <= 2 * kLimit) {
    }
    EXPECT_LE(LogBytes(), kLimit + options_.segment_bytes);
  }

  static constexpr uint64_t kLimit = 2 << 20;  // Eight segments.
  const io::SimWorld machine_ = io::MakeSimWorld(1);
  const ModelSpec model_ = WideModel();
  const std::vector<TokenId> tokens_ = Tokens(kTokensEach);
  Options options_;
  uint64_t told_ = 0;
  Store store_;
  ModelId id_{};
  Branch branch_, filler_;
};

TEST_F(TheLogOutgrewItsLimit, AppendsComeAsFastAsItIsGivenBack) {
  SlowTables(2'000'000);
  for (const Durability durability : {Durability::kMemory, Durability::kPower}) {
    uint64_t bytes_max = 0;
    const uint64_t begin_ns = machine_.scheduler->MonotonicNs();
    const StoreMetrics before = store_.Metrics();
    for (int i = 0; i < 256; ++i) {  // 16 MiB.
      ASSERT_OK(Append(UINT64_MAX, durability));
      bytes_max = std::max(bytes_max, LogBytes());
    }
    EXPECT_LE(bytes_max, kLimit + options_.segment_bytes);
    const StoreMetrics metrics = store_.Metrics();
    EXPECT_GT(metrics.append_delay.count, before.append_delay.count + 10);
    EXPECT_LE(metrics.append_delay.sum_ns - before.append_delay.sum_ns,
              machine_.scheduler->MonotonicNs() - begin_ns);
    EXPECT_GT(metrics.retired_segments, before.retired_segments + 40);
  }
  // One episode, or some where the log got short in between; each is reported once.
  const uint64_t episodes = store_.Metrics().stalls_log_limit;
  EXPECT_GE(episodes, 1U);
  EXPECT_LE(episodes, 20U);
  EXPECT_EQ(told_, episodes);
  EXPECT_TRUE(HasKv(branch_, model_, 0, 512 * kTokensEach));
}

TEST_F(TheLogOutgrewItsLimit, WhatDoesNotWaitIsBusy) {
  SlowTables(10 * kSecond);
  FillUp();
  const uint64_t length = *branch_.length();
  KvSet kv(model_, Layout::kContiguous, length, kTokensEach);
  kv.Write(kSeed, length, length + kTokensEach);
  const uint64_t now_ns = machine_.scheduler->MonotonicNs();
  const char* const why = "the log is as long as log_bytes_max allows";
  const Delta delta = MakeDelta(tokens_, kv.View(length, kTokensEach));
  EXPECT_FAILS(branch_.Append(delta, {}), StatusCode::kBusy, why);
  WriteBatch batch;
  batch.Append(branch_, delta);
  EXPECT_FAILS(store_.Write(batch, {}), StatusCode::kBusy, why);
  ASSERT_OK_ASSIGN(Draft draft, branch_.BeginAppend(kTokensEach));
  EXPECT_FAILS(draft.Commit(MakeDelta(tokens_), {}), StatusCode::kBusy, why);
  KvSet large(model_, Layout::kContiguous, length, 256);
  large.Write(kSeed, length, length + 256);
  const std::vector<TokenId> many = Tokens(256);
  Result<Ticket> taken = branch_.Append(MakeDelta(many, large.View(length, 256)), {});
  EXPECT_FAILS(taken, StatusCode::kBusy, why);
  if (taken.ok()) static_cast<void>(taken->Wait());  // Its memory is the test's.
  // Work that gives space back is never held.
  EXPECT_OK(branch_.Rewind(length - 1, Durability::kPower));
  ASSERT_OK(branch_.Drop(Durability::kPower));
  EXPECT_LT(machine_.scheduler->MonotonicNs() - now_ns, kSecond) << "nobody waited";
}

TEST_F(TheLogOutgrewItsLimit, WhoWaitsHasADeadlineAndAClose) {
  SlowTables(10 * kSecond);
  FillUp();
  EXPECT_FAILS(Append(kSecond), StatusCode::kDeadlineExceeded,
               "the log stayed as long as log_bytes_max allows");
  Status appended, created;
  std::vector<std::unique_ptr<io::Thread>> threads;
  threads.push_back(
      machine_.scheduler->StartThread("append", [&] { appended = Append(UINT64_MAX); }));
  threads.push_back(machine_.scheduler->StartThread(
      "create", [&] { created = store_.CreateBranch(id_).status(); }));
  machine_.scheduler->Sleep(kSecond / 10);
  ASSERT_OK(store_.Close());
  threads.clear();
  EXPECT_FAILS(appended, StatusCode::kInvalidState, "closed");
  EXPECT_FAILS(created, StatusCode::kInvalidState, "closed");
}

TEST_F(TheLogOutgrewItsLimit, APauseLetsItGrow) {
  SlowTables(kSecond);
  FillUp();
  Status appended(StatusCode::kBusy, "");
  auto thread = machine_.scheduler->StartThread("append", [&] { appended = Append(UINT64_MAX); });
  machine_.scheduler->Sleep(1000);
  ASSERT_OK(store_.PauseBackground());
  thread.reset();
  EXPECT_OK(appended);
  while (LogBytes() < 2 * kLimit) ASSERT_OK(Append(kSecond));
  // It gets short again, and appends go on meanwhile.
  machine_.disk->ClearFaults();
  ASSERT_OK(store_.ResumeBackground());
  int appends = 0;
  while (LogBytes() > kLimit && appends < 1000) {
    ASSERT_OK(Append(60 * kSecond));
    ++appends;
  }
  EXPECT_GT(appends, 0);
  EXPECT_LT(appends, 1000);
}

// An opening returns at once, and appends wait for it.
TEST_F(TheLogOutgrewItsLimit, AStoreThatIsOpenedWithALongLog) {
  ASSERT_OK(store_.PauseBackground());
  while (LogBytes() < 3 * kLimit) ASSERT_OK(Append());
  ASSERT_OK(store_.Close());
  SlowTables(kSecond / 10);
  const uint64_t now_ns = machine_.scheduler->MonotonicNs();
  Open();
  EXPECT_LT(machine_.scheduler->MonotonicNs() - now_ns, kSecond / 10);
  ASSERT_OK_ASSIGN(branch_, store_.FindBranch("chat"));
  EXPECT_OK(Append());
  EXPECT_GE(machine_.scheduler->MonotonicNs() - now_ns, kSecond / 10) << "it waited";
  EXPECT_GT(store_.Metrics().retired_segments, 0U);
}

TEST_F(TheLogOutgrewItsLimit, WhatCannotBeGivenBackHoldsNobody) {
  ASSERT_OK(store_.PauseBackground());
  while (LogBytes() < kLimit) ASSERT_OK(Append());
  ASSERT_OK(store_.Flush());
  const auto tables_fail = [](const io::SimOperation& op) {
    return op.path.find("/tables/") != std::string::npos;
  };
  machine_.disk->AddFault({.when = tables_fail, .error = EIO, .persistent = true});
  ASSERT_OK(store_.ResumeBackground());
  while (LogBytes() < 2 * kLimit) ASSERT_OK(Append(60 * kSecond));
  EXPECT_EQ(store_.Metrics().background_failing, 1U);
  machine_.disk->ClearFaults();
  for (int i = 0; i < 200; ++i) ASSERT_OK(Append(60 * kSecond));
  EXPECT_LE(LogBytes(), kLimit + options_.segment_bytes) << "it gives back again";
}

// Its parts keep what they are in from being given back, so it must not wait for that.
TEST_F(TheLogOutgrewItsLimit, ALargeAppendThatHasBegunGoesOn) {
  ASSERT_OK(store_.Close());
  Open();
  ASSERT_OK_ASSIGN(branch_, store_.FindBranch("chat"));
  SlowTables(1'000'000);
  constexpr uint64_t kMany = 512;  // 4 MiB: twice the limit.
  for (int i = 0; i < 4; ++i) {
    const uint64_t length = *branch_.length();
    KvSet kv(model_, Layout::kContiguous, length, kMany);
    kv.Write(kSeed, length, length + kMany);
    ASSERT_OK(branch_.AppendSync(MakeDelta(Tokens(kMany), kv.View(length, kMany)),
                                 {.timeout_ns = 600 * kSecond}));
  }
  EXPECT_LE(LogBytes(), kLimit + kMany * model_.token_bytes() + 2 * options_.segment_bytes);
  EXPECT_TRUE(HasKv(branch_, model_, 0, 4 * kMany));
}

}  // namespace
}  // namespace cairn::testing
