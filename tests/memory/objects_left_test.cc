// SPDX-License-Identifier: Apache-2.0
//
// Property: of a large put that found no memory nothing is left: its branch, which has no name, is
// dropped, at once or with the next put.
// Method: each allocation of the put fails in turn, alone or with all behind it.
#include <gtest/gtest.h>

#include "sim/disk.h"
#include "tests/engine/objects_test.h"
#include "tests/memory/failing_at.h"
#include "tests/memory/whole_world.h"

namespace cairn::memory {
namespace {

class ObjectsLeftTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Persistent, ObjectsLeftTest, ::testing::Bool());

TEST_P(ObjectsLeftTest, NoBranchWithoutAName) {
  const auto disk = std::make_shared<io::SimDisk>();
  std::string escaped;
  Options options = testing::TinyOptions();
  options.world = std::make_shared<io::World>(MakeWholeWorld(disk, 1, &escaped));
  ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
  Objects space(store);
  ASSERT_OK_ASSIGN(const ObjectClassId id,
                   space.RegisterClass({.name = "pages", .page_bytes = 512}));
  const std::vector<std::byte> large = testing::Content(1, 300'000);
  const std::vector<std::byte> small = testing::Content(2, 100);
  const ObjectPut a{.key = "a", .value = large}, b{.key = "b", .value = small};
  const std::string_view key = "a";
  uint64_t failed = 0;
  AtEveryAllocation([&](uint64_t n) {
    {
      const FailingAt failing(n, GetParam());
      const auto put = space.PutBatch({&a, 1}, {.object_class = id});
      failed += !put.ok() || !(*put)[0].status.ok();
    }
    ASSERT_OK(space.PutBatch({&b, 1}, {.object_class = id}));
    ASSERT_OK_ASSIGN(const ObjectPage there, space.List("", 10));
    EXPECT_EQ(there.objects.size(), space.Usage()->at(0).branches);
    ASSERT_OK(space.Delete({&key, 1}));
  });
  EXPECT_GT(failed, 10u);
  EXPECT_EQ("", escaped);
}

}  // namespace
}  // namespace cairn::memory
