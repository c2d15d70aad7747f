// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever disk and GPU do, however small the arena is, and whatever becomes of the
// branches, a piece that a fetch shows is what was appended, bit for bit; a strict fetch shows all;
// the status names what failed; the arena never holds more than it may.
// Method: sparse_fetches.h. The check is shown to fail.
#include "tests/sim/sparse_fetches.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/test_seed.h"

namespace cairn::sim {
namespace {

TEST(SparseFetches, EverySeedShowsWhatWasAppended) {
  constexpr uint64_t kSeeds = 100;  // A thousand are in tools/soak.
  const uint64_t first = testing::QuickTestSeed();
  SparseFetchesResult all;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    const testing::Repeatable repeatable(seed);
    const SparseFetchesResult one = RunSparseFetches({.seed = seed});
    all.Add(one);
    ASSERT_EQ(one.violation, "") << "to repeat: " << repeatable.command();
  }
  std::printf("%s\n", all.Counts().c_str());
  EXPECT_GT(all.pieces, 0U);
  EXPECT_GT(all.left_out, 0U);
  EXPECT_GT(all.extended, 0U);
  EXPECT_GT(all.replayed, 0U);
  EXPECT_GT(all.faults, 0U);
  EXPECT_GT(all.failed, 0U);
  EXPECT_GT(all.dropped, 0U);
  EXPECT_GT(all.timed_out, 0U);
}

// While its session waited for the turn to leave the pool, another that evicted looked into its
// tables, which were gone already.
TEST(SparseFetches, ASessionOfALostDeviceLeftThePoolWithoutItsTables) {
  EXPECT_EQ(RunSparseFetches({.seed = 190057745}).violation, "");
}

TEST(SparseFetches, AByteThatIsAnotherIsFoundOut) {
  EXPECT_NE(RunSparseFetches({.seed = 1, .wrong_byte = true}).violation, "");
}

}  // namespace
}  // namespace cairn::sim
