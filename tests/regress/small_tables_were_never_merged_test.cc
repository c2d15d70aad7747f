// SPDX-License-Identifier: Apache-2.0
//
// The bug: nothing ever made one table of several small ones: a conversation of a thousand turns
// was as many files for good, each with a footer, and each opened by every restore of it.
// Method: more small tables than there may be, on one path, and beside them a dropped branch.
#include "engine/config/constants.h"
#include "tests/engine/engine_test.h"
#include "tests/support/few_descriptors.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kTables = engine::kSmallTablesMax + 8, kEach = 2;  // Positions of an append.

class SmallTablesWereNeverMerged : public WorldTest {};
INSTANTIATE_TEST_SUITE_P(Worlds, SmallTablesWereNeverMerged,
                         ::testing::Values("memory", "simulated"), NameOf);

TEST_P(SmallTablesWereNeverMerged, TheyBecomeOne) {
  const ModelSpec model = WideModel();
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat"), other = Create(id, "other");
  ASSERT_OK(AppendSome(other, model, 0, kEach));
  uint64_t most = 0;
  for (uint64_t at = 0; at < kTables * kEach; at += kEach) {
    ASSERT_OK(AppendSome(chat, model, at, kEach));
    ASSERT_OK(store_.Compact());
    most = std::max(most, store_.Metrics().tables);
  }
  ASSERT_OK(other.Drop());
  EXPECT_EQ(engine::kSmallTablesMax, most);
  EXPECT_GT(kTables / 2, store_.Metrics().tables);
  EXPECT_LE(engine::kSmallTablesMax, store_.Metrics().merged_tables);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_TRUE(HasKv(Find("chat"), model, 0, kTables * kEach));
    EXPECT_EQ(kTables * kEach, Find("chat").ReadTokens(0, kTables * kEach)->size());
    EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
    Reopen();
  }
  ASSERT_OK(Find("chat").Drop());
  ASSERT_OK(store_.Compact());
  EXPECT_EQ(0U, store_.Metrics().tables);
}

// It cannot have all of them open, and some are no longer there.
TEST(SmallTablesWereMerged, AFollowerThatHadReadThemLooksAnew) {
  const auto world = TestWorld::Make("threads");
  const FewDescriptors few(60);
  const ModelSpec model = WideModel();
  ASSERT_OK_ASSIGN(Store store, world->Open(world->options()));
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  for (uint64_t at = 0; at < engine::kSmallTablesMax * kEach; at += kEach) {
    ASSERT_OK(AppendSome(chat, model, at, kEach));
    ASSERT_OK(store.Compact());
  }
  Options reading = world->options();
  reading.create_if_missing = false;
  reading.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, world->Open(reading));
  ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
  EXPECT_TRUE(HasKv(seen, model, 0, kEach));
  ASSERT_OK(AppendSome(chat, model, engine::kSmallTablesMax * kEach, kEach));
  ASSERT_OK(store.Compact());
  ASSERT_GT(engine::kSmallTablesMax / 2, store.Metrics().tables);
  EXPECT_TRUE(HasKv(seen, model, 0, engine::kSmallTablesMax * kEach));
  EXPECT_EQ(store.Metrics().tables, follower.Metrics().tables);
}

}  // namespace
}  // namespace cairn::testing
