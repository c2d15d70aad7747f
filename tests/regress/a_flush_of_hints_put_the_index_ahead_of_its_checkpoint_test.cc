// SPDX-License-Identifier: Apache-2.0
//
// The bug: a tree flush flushed the hints between its two steps, after the memory of the tree's
// index had got what the manifest is of and before that was closed. While the flush waited for its
// share of the disk, so much changed that the index got that, too: the manifest named a sequence,
// the tables had more, and the next opening replayed what they had already and took it for damage.
// Method: hints of half a second at the rate of the background, and a thousand changes meanwhile.
#include "sim/world.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

TEST(AFlushOfHintsPutTheIndexAheadOfItsCheckpoint, WhatIsAppendedMeanwhileIsReplayed) {
  const io::SimWorld machine = io::MakeSimWorld(1);
  Options options = FindingOptions();
  options.segment_bytes = 64 << 20;
  options.replay_records_max = 256;
  options.background_bytes_per_second = 1 << 20;
  options.world = std::make_shared<io::World>(machine.world());
  options.reuse_memory_bytes = 32 << 20;
  std::vector<std::shared_ptr<io::SimDisk>> kills;
  {
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(TokenModel()));
    ASSERT_OK_ASSIGN(Branch prompt, store.CreateBranch(model));
    ASSERT_OK(prompt.AppendSync(MakeDelta(Tokens(20'000, 5))));
    const std::vector<TokenId> one = Tokens(1, 6);
    // Each is found by all of its path, so there are many hints of few tokens.
    for (uint64_t i = 0; i < 100; ++i) {
      ASSERT_OK_ASSIGN(Branch fork, prompt.ForkAt(20'000, {.ns = "ns" + std::to_string(i)}));
      ASSERT_OK(fork.AppendSync(MakeDelta(one)));
    }
    // A replay from too early does not find what it forks.
    ASSERT_OK_ASSIGN(Branch last, store.CreateBranch(model));
    ASSERT_OK(last.AppendSync(MakeDelta(one)));
    for (uint64_t i = 0; i < 6000; ++i) {
      ASSERT_OK_ASSIGN(Branch more, store.CreateBranch(model));
      ASSERT_OK(more.AppendSync(MakeDelta(one)));
      ASSERT_OK_ASSIGN(Branch next, last.ForkAt(1, {}));
      ASSERT_OK(next.AppendSync(MakeDelta(one)));
      ASSERT_OK(last.Drop());
      last = next;
      machine.scheduler->Sleep(kMillisecond / 2);
      if (i % 500 == 499) kills.push_back(machine.disk->KillClone());
    }
  }
  kills.push_back(machine.disk->KillClone());  // Closed.
  for (const auto& disk : kills) {
    options.world = std::make_shared<io::World>(
        io::World{.files = disk, .scheduler = std::make_shared<io::SimScheduler>(2)});
    EXPECT_OK(Store::Open("/store", options));
  }
}

}  // namespace
}  // namespace cairn::testing
