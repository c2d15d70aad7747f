// SPDX-License-Identifier: Apache-2.0
//
// The bug: a Fill of evicted KV was kInvalidArgument ("begins at position 64; the branch has KV up
// to 256") when, between two of its steps, another branch that shares the positions filled them, or
// was forked from their middle.
// Method: two branches fill what they share at the same time, and forks come off it, on a simulated
// machine whose seeds give other orders of it all.
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kCount = 256;

class FillBesideAFillOfTheSame : public ::testing::TestWithParam<uint64_t> {
 protected:
  // Two branches that share kCount positions, all of them evicted.
  void SetUp() override {
    Options options = TinyOptions();
    options.world = std::make_shared<io::World>(machine_.world());
    ASSERT_OK_ASSIGN(store_, Store::Open("store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store_.RegisterModel(model_));
    const uint64_t cap = 2 * kCount * model_.token_bytes();  // Room to fill without evicting.
    ASSERT_OK(store_.SetNamespace("t", {.max_bytes = cap, .evict = Evict::kKv}));
    ASSERT_OK_ASSIGN(left_, store_.CreateBranch(id, {.ns = "t"}));
    ASSERT_OK(AppendSome(left_, model_, 0, kCount));
    ASSERT_OK_ASSIGN(right_, left_.ForkAt(kCount, {.ns = "t"}));
    ASSERT_OK_ASSIGN(Branch other, store_.CreateBranch(id, {.ns = "t"}));
    ASSERT_OK(AppendSome(other, model_, 0, kCount * 3 / 2));
    ASSERT_EQ((std::vector<KvHole>{{0, 0, kCount}}), *right_.EvictedKv());
    ASSERT_OK(other.Drop());
    kv_.Write(kSeed, 0, kCount);
  }

  const io::SimWorld machine_ = io::MakeSimWorld(GetParam());
  const ModelSpec model_ = WideModel();  // Some twenty records.
  KvSet kv_{model_, Layout::kNhd, 0, kCount};
  Store store_;
  Branch left_, right_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, FillBesideAFillOfTheSame, ::testing::Range<uint64_t>(1, 13));

TEST_P(FillBesideAFillOfTheSame, BothAreDone) {
  const KvView whole = *kv_.View(0, kCount);
  Status filled;
  auto thread = machine_.scheduler->StartThread("left", [&] { filled = left_.Fill(whole); });
  auto forks = machine_.scheduler->StartThread("forks", [&] {
    for (uint64_t at = kCount - 3; at > 8; at -= 7) {
      EXPECT_OK(left_.ForkAt(at, {.ns = "t"}));
      machine_.scheduler->Sleep(50'000);
    }
  });
  EXPECT_OK(right_.Fill(whole));
  thread.reset();  // Waits for it.
  forks.reset();
  EXPECT_OK(filled);
  EXPECT_TRUE(HasKv(left_, model_, 0, kCount));
  EXPECT_TRUE(HasKv(right_, model_, 0, kCount));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

TEST_P(FillBesideAFillOfTheSame, WhatWasCutMeanwhileIsAConflict) {
  const KvView whole = *kv_.View(0, kCount);
  Status filled;
  auto thread = machine_.scheduler->StartThread("right", [&] { filled = right_.Fill(whole); });
  while (store_.Metrics().filled_bytes == 0) machine_.scheduler->Sleep(10'000);
  ASSERT_OK(right_.Rewind(4));
  thread.reset();
  EXPECT_FAILS(filled, StatusCode::kConflict, "positions [4, ");
  EXPECT_TRUE(HasKv(right_, model_, 0, 4));
  EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
}

}  // namespace
}  // namespace cairn::testing
