// SPDX-License-Identifier: Apache-2.0
//
// The bug: what was appended while Compact was sealing was struck off the list of what has to be
// sealed, together with what had been; its segment of the log was given back one day, and the
// positions were lost. Method: appends to ever new branches beside one Compact after the other, in
// tiny segments, until segments were given back behind both.
#include <atomic>
#include <thread>

#include "tests/engine/engine_test.h"

namespace cairn::testing {
namespace {

TEST(CompactForgotWhatCameMeanwhile, EveryPositionIsThere) {
  const ModelSpec spec = WideModel();
  const auto world = TestWorld::Make("memory");
  const Options options = world->options();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK_ASSIGN(const ModelId model, store.RegisterModel(spec));
  constexpr int kBranches = 400;
  constexpr uint64_t kEach = 4;
  std::atomic<bool> done{false};
  std::vector<BranchId> branches;
  std::thread writer([&] {
    for (int i = 0; i < kBranches && !::testing::Test::HasFailure(); ++i) {
      auto branch = store.CreateBranch(model);
      EXPECT_OK(branch);
      EXPECT_OK(AppendSome(*branch, spec, 0, kEach));
      branches.push_back(branch->id());
    }
    done = true;
  });
  while (!done) EXPECT_OK(store.Compact());
  writer.join();
  ASSERT_OK(store.Compact());
  EXPECT_GT(store.Metrics().retired_segments, 10u);
  ASSERT_OK(store.Close());
  ASSERT_OK_ASSIGN(store, world->Open(options));
  for (const BranchId id : branches) {
    EXPECT_TRUE(HasKv(*store.GetBranch(id), spec, 0, kEach)) << static_cast<uint64_t>(id);
  }
}

}  // namespace
}  // namespace cairn::testing
