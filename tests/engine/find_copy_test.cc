// SPDX-License-Identifier: Apache-2.0
//
// Property: copies of a store have its index of prefixes, and followers know its files.
#include "engine/config/constants.h"
#include "tests/engine/find_test.h"

namespace cairn::testing {
namespace {

class FindCopyTest : public FindTest {};

TEST_P(FindCopyTest, FindsAtOnceWhatTheStoreFinds) {
  const std::vector<TokenId> ids = Tokens(300, 5), behind = Tokens(200, 6);
  Make("a", ids);
  ASSERT_OK(store_.Compact());
  Make("b", behind);
  const std::string path = world_->path() + "-copy";
  ASSERT_OK(store_.Checkpoint(path));
  ASSERT_OK(store_.Close());
  Options options = FindingOptions();
  options.world = world_->options().world;
  options.create_if_missing = false;
  ASSERT_OK_ASSIGN(store_, Store::Open(path, options));
  for (const std::vector<TokenId>& asked : {ids, behind}) {
    const PrefixHit hit = Ask(asked);
    EXPECT_EQ(hit.matched, asked.size());
    EXPECT_TRUE(hit.complete);
  }
  EXPECT_EQ(store_.Metrics().hints_incomplete, 0u) << "they were made anew";
}

TEST_P(FindCopyTest, AFollowerCountsItsFiles) {
  Make("a", Tokens(300, 5));
  ASSERT_OK(store_.Compact());
  Options options = FindingOptions();
  options.world = world_->options().world;
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, Store::Open(world_->path(), options));
  io::FileSystem& files = *world_->world().files;
  const std::string path = world_->path() + "/tables";
  uint64_t there = 0, known = 0;
  for (int look = 0; look < 100 && (look == 0 || there != known); ++look) {
    world_->world().scheduler->Sleep(100'000'000);  // Until the writer has come to rest.
    ASSERT_OK(follower.Refresh());
    const StoreMetrics metrics = follower.Metrics();
    known = metrics.physical_bytes;
    there = engine::kSmallFilesBytes + metrics.log_segments * world_->options().segment_bytes;
    ASSERT_OK_ASSIGN(const std::vector<std::string> names, files.List(path));
    for (const std::string& name : names) {
      const auto info = files.Info(path + "/" + name);
      if (info.ok()) there += info->bytes;
    }
  }
  EXPECT_EQ(there, known);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FindCopyTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

}  // namespace
}  // namespace cairn::testing
