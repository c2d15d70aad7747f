// SPDX-License-Identifier: Apache-2.0
//
// Property: a refresh that finds no memory shows what was shown before, and the next one makes up
// for it. Method: at the N-th allocation, for every N, while a table that was seen is gone.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/io/sim_disk.h"
#include "tests/engine/engine_test.h"
#include "tests/memory/failing_new.h"
#include "tests/memory/whole_world.h"

namespace cairn::memory {
namespace {

using testing::AppendSome;
using testing::kSeed;

std::vector<std::string> Names(const Store& store) {
  std::vector<std::string> names;
  const auto page = store.ListBranches("", "", 100);
  EXPECT_OK(page);
  for (const BranchInfo& info : page->branches) names.push_back(info.name);
  return names;
}

TEST(Refresh, WithoutMemoryShowsWhatItShowedAndIsMadeUpFor) {
  uint64_t failed = 0, calls = 0;
  for (uint64_t n = 1; n == 1 || failed != 0; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::string escaped;
    Options options = testing::TinyOptions();
    options.world =
        std::make_shared<io::World>(MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped));
    ASSERT_OK_ASSIGN(Store writer, Store::Open("/store", options));
    const ModelSpec model = testing::TinyModel();
    ASSERT_OK_ASSIGN(const ModelId id, writer.RegisterModel(model));
    const auto change = [&](const std::string& name) {
      ASSERT_OK_ASSIGN(Branch branch, writer.CreateBranch(id, {.name = name}));
      ASSERT_OK(AppendSome(branch, model, 0, 40, kSeed, Durability::kPower));
      ASSERT_OK(writer.Compact());
    };
    change("a");
    options.create_if_missing = false;
    options.read_only = true;
    ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", options));
    const std::vector<std::string> old = Names(follower);
    ASSERT_OK_ASSIGN(Branch a, writer.FindBranch("a"));
    ASSERT_OK(a.Drop(Durability::kPower));
    change("b");
    ASSERT_OK(writer.Flush());

    SetFailPlan({.at = n});
    Result<RefreshResult> first = RefreshResult();
    {
      const FailingScope failing;
      first = follower.Refresh();
    }
    failed = AllocationsFailed();
    SetFailPlan({});
    if (!first.ok()) {
      EXPECT_FAILS(first, StatusCode::kOutOfMemory);
      EXPECT_EQ(Names(follower), old);
      ASSERT_OK_ASSIGN(const RefreshResult second, follower.Refresh());
      EXPECT_TRUE(second.changed);
    }
    EXPECT_EQ(Names(follower), Names(writer));
    EXPECT_NE(Names(follower), old);
    EXPECT_EQ(escaped, "");
    if (::testing::Test::HasFailure()) break;
    calls = n;
  }
  EXPECT_GT(calls, 50u);
}

}  // namespace
}  // namespace cairn::memory
