// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever disk and GPU do at once, and however a restore into the GPU ends, every layer
// that is reported complete is right bit for bit, nothing is touched when the call is over, the
// status names what failed, and the store goes on and restores into host memory; one seed gives one
// run. Method: gpu_restores.h. The checks are shown to fail.
#include "tests/sim/gpu_restores.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/test_seed.h"

namespace cairn::sim {
namespace {

TEST(GpuRestores, EverySeedKeepsItsPromisesAndSomeRepeatThemselves) {
  constexpr uint64_t kSeeds = 100, kRepeated = 10;
  const uint64_t first = testing::QuickTestSeed();
  GpuRestoresResult all;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    const testing::Repeatable repeatable(seed);
    const GpuRestoresResult one = RunGpuRestores({.seed = seed});
    all.Add(one);
    ASSERT_EQ(one.violation, "") << "to repeat: " << repeatable.command();
    if (seed >= first + kRepeated) continue;
    ASSERT_EQ(one.schedule_hash, RunGpuRestores({.seed = seed}).schedule_hash)
        << "the same seed gave two runs; to repeat: " << repeatable.command();
  }
  std::printf("%s\n", all.Counts().c_str());
  EXPECT_GT(all.whole, 0U);
  EXPECT_GT(all.cancelled, 0U);
  EXPECT_GT(all.timed_out, 0U);
  EXPECT_GT(all.by_device, 0U);
  EXPECT_GT(all.by_disk, 0U);
  EXPECT_GT(all.by_either, 0U);
  EXPECT_GT(all.lost, 0U);
  EXPECT_GT(all.layers_early, 0U);
}

TEST(GpuRestores, ALayerThatIsNotThereIsFoundOut) {
  EXPECT_NE(RunGpuRestores({.seed = 1, .wrong_byte = true}).violation, "");
}

TEST(GpuRestores, MemoryThatIsTouchedLaterIsFoundOut) {
  EXPECT_NE(RunGpuRestores({.seed = 1, .late_byte = true}).violation, "");
}

}  // namespace
}  // namespace cairn::sim
