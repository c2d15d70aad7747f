// SPDX-License-Identifier: Apache-2.0
//
// Property: copies of a store have its index of prefixes, and followers know its files.
#include "engine/constants.h"
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
  world_->world().scheduler->Sleep(200'000'000);  // The writer has come to rest.
  Options options = FindingOptions();
  options.world = world_->options().world;
  options.create_if_missing = false;
  options.read_only = true;
  ASSERT_OK_ASSIGN(const Store follower, Store::Open(world_->path(), options));
  uint64_t tables = 0;
  io::FileSystem& files = *world_->world().files;
  const std::string path = world_->path() + "/tables";
  ASSERT_OK_ASSIGN(const std::vector<std::string> names, files.List(path));
  for (const std::string& name : names) tables += files.Info(path + "/" + name)->bytes;
  const StoreMetrics metrics = follower.Metrics();
  EXPECT_EQ(metrics.physical_bytes, engine::kSmallFilesBytes + tables +
                                        metrics.log_segments * world_->options().segment_bytes);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FindCopyTest, ::testing::ValuesIn(TestWorld::Names()), NameOf);

}  // namespace
}  // namespace cairn::testing
