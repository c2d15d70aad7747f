// SPDX-License-Identifier: Apache-2.0
//
// Property: while a table is written the one before is verified, where the device is ours; whatever
// happens to one of the two, the other is not lost, and nothing is. Method: the simulated machine,
// where every operation on a table is seen.
#include "engine/background/table_series.h"

#include <functional>
#include <string>
#include <utility>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kTokens = 2048;  // 16 MiB, of which a table takes 5 here.

class TableSeriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    chat_ = {};
    ASSERT_OK(store_.Close());
    sim_ = io::MakeSimWorld(1);
    options_.world = std::make_shared<io::World>(sim_.world());
    options_.create_if_missing = true;
    options_.segment_bytes = 1 << 20;
    options_.max_bytes = 128 << 20;
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(model_));
    ASSERT_OK_ASSIGN(chat_, store_.CreateBranch(model));
    ASSERT_OK(store_.PauseBackground());
    for (uint64_t at = 0; at < kTokens; at += 16) ASSERT_OK(AppendSome(chat_, model_, at, 16));
    sim_.scheduler->Sleep(100 * kMillisecond);  // Nobody has used the device for long.
    sim_.disk->AddFault({.when = [this](const io::SimOperation& op) { return Saw(op); },
                         .error = EIO,
                         .persistent = true});
    ASSERT_OK(store_.ResumeBackground());
  }

  // Whether it fails.
  bool Saw(const io::SimOperation& op) {
    flushes_ += op.op == io::SimOp::kCreate && op.path.find(".index") != std::string::npos;
    if (op.path.find(".snapshot") == std::string::npos) return false;
    const uint64_t number = std::stoull(op.path.substr(op.path.rfind('/') + 1), nullptr, 16);
    if (op.op == io::SimOp::kCreate) {
      ++tables_;
      last_begun_ = number;
    } else if (op.op == io::SimOp::kRead) {
      overlaps_ += number < last_begun_;
      // Since the read before it, of the same table.
      if (std::exchange(last_read_, number) == number) flushes_in_read_backs_ += flushes_;
      flushes_ = 0;
    }
    ++operations_;
    return fails_ && fails_(op);
  }

  void ExpectAllIsThere() {
    EXPECT_TRUE(HasKv(chat_, model_, 0, kTokens));
    ASSERT_OK_ASSIGN(const VerifyReport report, store_.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty());
    ASSERT_OK(store_.Close());
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(chat_, store_.GetBranch(chat_.id()));
    EXPECT_TRUE(HasKv(chat_, model_, 0, kTokens));
  }

  io::SimWorld sim_;
  const ModelSpec model_ = WideModel();
  Options options_;
  Store store_;
  Branch chat_;
  std::function<bool(const io::SimOperation&)> fails_;
  uint64_t flushes_ = 0, flushes_in_read_backs_ = 0, last_read_ = 0;
  uint64_t operations_ = 0, overlaps_ = 0, tables_ = 0, last_begun_ = 0;
};

TEST_F(TableSeriesTest, OneIsReadBackWhileTheNextIsWritten) {
  ASSERT_OK(store_.Compact());
  EXPECT_GE(store_.Metrics().seals, 3U);
  EXPECT_GT(overlaps_, 10U);
  ExpectAllIsThere();
}

TEST_F(TableSeriesTest, ButOneAfterTheOtherBesideOthers) {
  bool done = false;
  const auto use = [&] {
    TokenId token = 0;
    RestoreRequest request;
    request.end = 1;
    request.tokens = {&token, 1};
    EXPECT_OK(chat_.Restore(request));
  };
  use();
  auto user = sim_.scheduler->StartThread("user", [&] {
    for (; !done; sim_.scheduler->Sleep(5 * kMillisecond)) use();
  });
  ASSERT_OK(store_.Compact());
  done = true;
  user.reset();
  EXPECT_GE(store_.Metrics().seals, 3U);
  EXPECT_LE(overlaps_, 1U) << "the user's own";
  ExpectAllIsThere();
}

// The length of an opening's replay does not depend on how long a read-back takes, alone or beside
// a writer.
TEST_F(TableSeriesTest, TreeFlushesGoOnWhileOneIsReadBack) {
  for (const bool beside_others : {true, false}) {
    ASSERT_OK(store_.Close());
    options_.background_bytes_per_second = 1 << 20;
    options_.replay_records_max = 8;
    ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
    ASSERT_OK_ASSIGN(const ModelId model, store_.RegisterModel(model_));
    bool done = false;
    const uint64_t every_ns = (beside_others ? 10 : 50) * kMillisecond;
    auto user = sim_.scheduler->StartThread("user", [&] {
      for (; !done; sim_.scheduler->Sleep(every_ns)) {
        auto branch = store_.CreateBranch(model);
        EXPECT_OK(branch);
        EXPECT_OK(AppendSome(*branch, model_, 0, 1));
      }
    });
    flushes_in_read_backs_ = 0;
    const uint64_t tables = tables_;
    while (tables_ < tables + 3) sim_.scheduler->Sleep(kMillisecond);
    done = true;
    user.reset();
    EXPECT_GT(flushes_in_read_backs_, 0U) << (beside_others ? "beside others" : "alone");
    if (beside_others) SetUp();
  }
}

TEST_F(TableSeriesTest, OneThatCannotBeReadIsDroppedAndTheNextIsNot) {
  uint64_t writes = 0;
  sim_.disk->AddFault({.when =
                           [&](const io::SimOperation& op) {
                             return op.op == io::SimOp::kWrite && tables_ == 2 && ++writes == 2 &&
                                    op.path.find(".snapshot") != std::string::npos;
                           },
                       .lost = true});
  EXPECT_FAILS(store_.Compact(), StatusCode::kCorruption, "a frame");
  EXPECT_GT(overlaps_, 0U);
  EXPECT_EQ(tables_ - 1, store_.Metrics().seals);
  EXPECT_TRUE(HasKv(chat_, model_, 0, kTokens));
  ASSERT_OK(store_.Compact());
  ExpectAllIsThere();
}

TEST_F(TableSeriesTest, WhatIsWrittenIsNotLostWhereTheNextFails) {
  bool full = true;
  fails_ = [&](const io::SimOperation& op) {
    return full && op.op == io::SimOp::kWrite && tables_ == 2;
  };
  EXPECT_FAILS(store_.Compact(), StatusCode::kIoError, ".snapshot");
  EXPECT_EQ(1U, store_.Metrics().seals);
  full = false;
  ASSERT_OK(store_.Compact());
  ExpectAllIsThere();
}

TEST_F(TableSeriesTest, PausedBothWait) {
  ASSERT_OK(store_.Close());
  options_.background_bytes_per_second = 4 << 20;
  ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
  ASSERT_OK_ASSIGN(chat_, store_.GetBranch(chat_.id()));
  auto user = sim_.scheduler->StartThread("user", [&] { EXPECT_OK(store_.Compact()); });
  for (int pauses = 0; pauses < 3;) {
    const uint64_t before = overlaps_;
    sim_.scheduler->Sleep(20 * kMillisecond);
    if (overlaps_ == before) continue;
    ASSERT_OK(store_.PauseBackground());
    const uint64_t operations = operations_;
    sim_.scheduler->Sleep(1000 * kMillisecond);
    EXPECT_EQ(operations, operations_);
    ASSERT_OK(store_.ResumeBackground());
    ++pauses;
  }
  user.reset();
  EXPECT_GE(store_.Metrics().seals, 3U);
  ExpectAllIsThere();
}

class TableSeriesEndTest : public TableSeriesTest,
                           public ::testing::WithParamInterface<uint64_t> {};

TEST_P(TableSeriesEndTest, AnEndInTheMiddleLosesNothing) {
  while (overlaps_ < GetParam()) sim_.scheduler->Sleep(kMillisecond / 10);
  EXPECT_OK(store_.Close());
  ASSERT_OK_ASSIGN(store_, Store::Open("/store", options_));
  ASSERT_OK_ASSIGN(chat_, store_.GetBranch(chat_.id()));
  ASSERT_OK(store_.Compact());
  ExpectAllIsThere();
}

INSTANTIATE_TEST_SUITE_P(Reads, TableSeriesEndTest, ::testing::Values(1, 3, 10, 20));

}  // namespace
}  // namespace cairn::testing
