// SPDX-License-Identifier: Apache-2.0
//
// The bug: every ingested append made a table of its own, and nothing ever made one of several: a
// conversation of a thousand turns was as many files for good, each with a footer, and each opened
// by every restore of it.
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
  Options options = world_->options();
  options.direct_ingest_bytes = kEach * model.token_bytes();
  Reopen(options);
  const ModelId id = Register(model);
  Branch chat = Create(id, "chat"), other = Create(id, "other");
  ASSERT_OK(AppendSome(other, model, 0, kEach));
  ASSERT_OK(store_.PauseBackground());
  for (uint64_t at = 0; at < kTables * kEach; at += kEach) {
    ASSERT_OK(AppendSome(chat, model, at, kEach));
  }
  ASSERT_OK(other.Drop());
  ASSERT_LE(kTables, store_.Metrics().tables);
  ASSERT_OK(store_.ResumeBackground());
  // Tables are gone a moment before they are counted.
  const auto is_done = [&] {
    const StoreMetrics metrics = store_.Metrics();
    return metrics.tables <= kTables / 2 && metrics.merged_tables >= engine::kSmallTablesMax;
  };
  for (int i = 0; i < 1000 && !is_done(); ++i) {
    world_->world().scheduler->Sleep(10'000'000);
  }
  EXPECT_GT(kTables / 2, store_.Metrics().tables) << "without being asked";
  EXPECT_LE(engine::kSmallTablesMax, store_.Metrics().merged_tables);
  for (int opened = 0; opened < 2; ++opened) {
    EXPECT_TRUE(HasKv(Find("chat"), model, 0, kTables * kEach));
    EXPECT_EQ(kTables * kEach, Find("chat").ReadTokens(0, kTables * kEach)->size());
    EXPECT_TRUE(store_.Verify(VerifyLevel::kAll)->damages.empty());
    Reopen(options);
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
  Options options = world->options();
  options.direct_ingest_bytes = kEach * model.token_bytes();
  ASSERT_OK_ASSIGN(Store store, world->Open(options));
  ASSERT_OK(store.PauseBackground());
  ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
  ASSERT_OK_ASSIGN(Branch chat, store.CreateBranch(id, {.name = "chat"}));
  for (uint64_t at = 0; at < kTables * kEach; at += kEach) {
    ASSERT_OK(AppendSome(chat, model, at, kEach));
  }
  ASSERT_OK(store.Flush());
  Options reading = world->options();
  reading.create_if_missing = false;
  reading.read_only = true;
  ASSERT_OK_ASSIGN(Store follower, world->Open(reading));
  ASSERT_OK_ASSIGN(const Branch seen, follower.FindBranch("chat"));
  EXPECT_TRUE(HasKv(seen, model, 0, kEach));
  ASSERT_OK(store.ResumeBackground());
  ASSERT_OK(store.Compact());
  ASSERT_GT(kTables / 2, store.Metrics().tables);
  EXPECT_TRUE(HasKv(seen, model, 0, kTables * kEach));
  EXPECT_EQ(store.Metrics().tables, follower.Metrics().tables);
}

}  // namespace
}  // namespace cairn::testing
