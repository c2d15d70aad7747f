// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever disk and GPU do, and whatever becomes of the branches, a step attends to the
// chunks that base/shadow chooses of what was appended, with just their keys and values, however
// the shadow came to be; the status names what failed; a power loss costs shadows at most.
// Method: shadow_steps.h. The check is shown to fail.
#include "tests/sim/shadow_steps.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/test_seed.h"

namespace cairn::sim {
namespace {

TEST(ShadowSteps, EverySeedAttendsToWhatWasAppended) {
  constexpr uint64_t kSeeds = 40;  // A thousand are in tools/soak.
  const uint64_t first = testing::QuickTestSeed();
  ShadowStepsResult all;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    const testing::Repeatable repeatable(seed);
    const ShadowStepsResult one = RunShadowSteps({.seed = seed});
    all.Add(one);
    ASSERT_EQ(one.violation, "") << "to repeat: " << repeatable.command();
  }
  std::printf("%s\n", all.Counts().c_str());
  EXPECT_GT(all.chunks, 0U);
  EXPECT_GT(all.low_rank, 0U);
  EXPECT_GT(all.extended, 0U);
  EXPECT_GT(all.grown, 0U);
  EXPECT_GT(all.grown_low_rank, 0U);
  EXPECT_GT(all.failed, 0U);
  EXPECT_GT(all.after_power, 0U);
}

TEST(ShadowSteps, AKeyThatIsAnotherIsFoundOut) {
  EXPECT_NE(RunShadowSteps({.seed = 1, .wrong_byte = true}).violation, "");
}

}  // namespace
}  // namespace cairn::sim
