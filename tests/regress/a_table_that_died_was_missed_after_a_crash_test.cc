// SPDX-License-Identifier: Apache-2.0
//
// A node with more branches than memory knows of lost all of them, and the table with its content
// was deleted. After a crash the replay left undecided whether the node was dead, so its table was
// missed: an intact store was called damaged, and a checkpoint failed; by one that is read only,
// for ever. A replay ends with nothing undecided.
#include "tests/regress/popular_node.h"

namespace cairn::testing {
namespace {

using ATableThatDied = PopularNodeTest;

TEST_F(ATableThatDied, IsNotMissedAfterACrash) {
  ASSERT_NO_FATAL_FAILURE(Make(WideModel(), /*forks=*/70));
  ASSERT_OK(store_.Compact());
  ASSERT_EQ(1u, store_.Metrics().tables);
  for (Branch& one : branches_) ASSERT_OK(one.Drop(Durability::kPower));
  machine_.scheduler->Sleep(2'000'000'000);
  ASSERT_EQ(0u, store_.Metrics().tables);

  for (const bool read_only : {true, false}) {
    Options options = FoundOn(machine_.disk->KillClone());
    options.read_only = read_only;
    ASSERT_OK_ASSIGN(Store found, Store::Open("/store", options));
    EXPECT_EQ(0u, found.Metrics().nodes);
    if (!read_only) {
      EXPECT_OK(found.Checkpoint("/copy"));
    }
    ASSERT_OK_ASSIGN(const VerifyReport report, found.Verify(VerifyLevel::kAll));
    EXPECT_TRUE(report.damages.empty()) << report.damages[0].where;
  }
}

}  // namespace
}  // namespace cairn::testing
