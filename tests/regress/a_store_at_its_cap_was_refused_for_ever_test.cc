// SPDX-License-Identifier: Apache-2.0
//
// The bug: at a small cap a process that ended soon was refused with kNoSpace although everything
// there could have been sealed: the append did not wait for the space thread, Close did not either,
// and so the next process found the store just as full.
// Method: short-lived processes, one after the other, at several caps. Their appends would fit the
// cap several times if they were sealed: tables of zeros are small.
#include <cstring>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTokens = 96 << 10;  // Per process: 384 KiB, more than a segment holds.
constexpr uint64_t kRuns = 40;

class AStoreAtItsCapWasRefusedForEver : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Segments, AStoreAtItsCapWasRefusedForEver, ::testing::Values(10, 12, 16));

// Appends in four pieces, and ends.
Status RunOnce(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(Store store, Store::Open("/store", options));
  CAIRN_ASSIGN_OR_RETURN(const ModelId model, store.RegisterModel(TokenModel()));
  auto branch = store.FindBranch("chat");
  if (!branch.ok()) branch = store.CreateBranch(model, {.name = "chat"});
  CAIRN_RETURN_IF_ERROR(branch.status());
  const std::vector<TokenId> tokens(kTokens / 4, 7);
  for (int piece = 0; piece < 4; ++piece) {
    CAIRN_RETURN_IF_ERROR(
        branch->AppendSync({.tokens = tokens}, {.durability = Durability::kPower}).status());
  }
  return store.Close();
}

TEST_P(AStoreAtItsCapWasRefusedForEver, SealingMakesRoom) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.max_bytes = static_cast<uint64_t>(GetParam()) * options.segment_bytes;
  options.background_bytes_per_second = 64 << 10;  // It comes too late for each of them.
  for (uint64_t run = 0; run < kRuns; ++run) {
    ASSERT_OK(RunOnce(options)) << "of process " << run;
  }
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(Branch branch, store.FindBranch("chat"));
  EXPECT_EQ(kRuns * kTokens, *branch.length());
}

// Appends that really do not fit are still refused, and soon.
TEST(AStoreThatIsFull, IsStillRefusedAndInTime) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = TinyOptions();
  options.world = std::make_shared<io::World>(machine.world());
  options.max_bytes = 10 * options.segment_bytes;
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(WideModel()));
  ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model, {.name = "chat"}));
  Status refused;
  for (uint64_t length = 0; refused.ok() && length < 4096; length += 16) {
    refused = AppendSome(branch, WideModel(), length, 16, kSeed, Durability::kPower).status();
  }
  EXPECT_EQ(StatusCode::kNoSpace, refused.code()) << refused.ToString();
  const std::vector<TokenId> many(40'000, 1);
  const uint64_t began_ns = machine.scheduler->MonotonicNs();
  EXPECT_EQ(StatusCode::kDeadlineExceeded,
            branch.AppendSync({.tokens = many}, {.timeout_ns = 0}).status().code());
  EXPECT_LE(machine.scheduler->MonotonicNs() - began_ns, 1'000'000u);
}

}  // namespace
}  // namespace cairn::testing
