// SPDX-License-Identifier: Apache-2.0
//
// Property: what an opening replays after a crash does not follow from how long sealing takes, and
// what is logged while a seal goes on, with tree flushes between its steps, is sealed by the next
// one. Method: the simulated machine with a slow background and a crash; real threads in tiny
// segments.
#include <atomic>
#include <thread>

#include "sim/world.h"
#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

// 20 MiB are to be sealed at 1 MiB per second: half a minute, in which 1500 records come.
TEST(FlushWhileSealing, ACrashDuringALongSealReplaysLittle) {
  const ModelSpec spec = WideModel();
  const io::SimWorld sim = io::MakeSimWorld(1);
  io::SimWorld after;
  Options options;
  options.create_if_missing = true;
  options.segment_bytes = 1 << 20;
  options.background_bytes_per_second = 1 << 20;
  options.log_bytes_max = 256 << 20;
  options.snapshot_interval_tokens = 64;
  options.replay_records_max = 256;
  std::vector<BranchId> branches;
  {
    options.world = std::make_shared<io::World>(sim.world());
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
    ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(model));
    constexpr uint64_t kTokens = 2560;  // 8 KiB each.
    for (uint64_t at = 0; at < kTokens; at += 16) ASSERT_OK(AppendSome(chat, spec, at, 16));
    const uint64_t sealed_before = store.Metrics().seals;
    for (int i = 0; i < 750; ++i) {
      ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(model));
      ASSERT_OK(AppendSome(branch, spec, 0, 1));
      branches.push_back(branch.id());
      sim.scheduler->Sleep(20 * kMillisecond);
    }
    EXPECT_EQ(sealed_before, store.Metrics().seals) << "it should have gone on all the time";
    ASSERT_OK(store.Flush());
    after = io::CrashWorld(*sim.disk, io::CrashChoice::KeepAll());
  }
  options.world = std::make_shared<io::World>(after.world());
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  // Appends made while the last tree flush was written, at its rate, are not in it.
  EXPECT_LT(store.Metrics().replayed_records, 2 * options.replay_records_max);
  for (const BranchId id : branches) {
    ASSERT_OK_ASSIGN(Branch branch, store.GetBranch(id));
    EXPECT_TRUE(HasKv(branch, spec, 0, 1));
  }
}

// As compact_forgot_what_came_meanwhile_test.cc, with tree flushes all the time.
TEST(FlushWhileSealing, WhatCameMeanwhileIsSealedLater) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  Options options = world->options();
  options.replay_records_max = 4;
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  constexpr int kBranches = 400;
  constexpr uint64_t kEach = 4;
  std::atomic<bool> done{false};
  std::vector<BranchId> branches;
  std::thread writer([&] {
    Branch last;
    for (int i = 0; i < kBranches && !::testing::Test::HasFailure(); ++i) {
      auto branch = store.CreateBranch(model);
      EXPECT_OK(branch);
      EXPECT_OK(AppendSome(*branch, spec, 0, kEach));
      // The same node in the same segment again.
      if (i > 0) {
        EXPECT_OK(AppendSome(last, spec, kEach, kEach));
      }
      last = *branch;
      branches.push_back(branch->id());
    }
    EXPECT_OK(AppendSome(last, spec, kEach, kEach));
    done = true;
  });
  while (!done) EXPECT_OK(store.Compact());
  writer.join();
  ASSERT_OK(store.Compact());
  EXPECT_GT(store.Metrics().retired_segments, 10u);
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, world->Open(options));
  for (const BranchId id : branches) {
    EXPECT_TRUE(HasKv(*store.GetBranch(id), spec, 0, 2 * kEach)) << static_cast<uint64_t>(id);
  }
}

}  // namespace
}  // namespace cairn::testing
