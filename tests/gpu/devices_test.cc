// SPDX-License-Identifier: Apache-2.0
//
// Property: kernels give the bits of base/codec and base/shadow on every device that there is,
// through its streams; a program without a CUDA device says so and goes on. Method: the drawn cases
// of kernels_test.cc, on the host's device and on a card where there is one.
#include <gtest/gtest.h>

#include "base/io/real_scheduler.h"
#include "gpu/sim_device.h"
#include "tests/gpu/card.h"
#include "tests/gpu/kernel_rounds.h"
#include "tests/gpu/ring_pipeline.h"
#include "tests/gpu/shadow_rounds.h"
#include "tests/gpu/slot_rounds.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

using Round = std::string (*)(KernelMachine&, uint64_t);

void AllRounds(gpu::Device& device, uint64_t seed, uint64_t count) {
  const std::unique_ptr<KernelMachine> machine = MakeDeviceMachine(device);
  for (const Round round :
       {DecodeScatterRound, DamagedFramesRound, LostTableRound, GatherSaveRound, GatherStepRound,
        CheckTableRound, ResolveSlotsRound, GatherPiecesRound, ScoreChunksRound, SelectChunksRound,
        RebuildKeysRound, RebuildLowRankRound, RotateKeysRound}) {
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(round(*machine, seed + i), "") << i;
  }
}

TEST(Devices, KernelsOnTheHostsDevice) {
  const uint64_t seed = QuickTestSeed();
  const Repeatable repeatable(seed);
  for (uint64_t device = 0; device < 5; ++device) {
    const auto host =
        gpu::MakeSimDevice(std::make_shared<io::RealScheduler>(), {.seed = seed + device});
    AllRounds(*host, seed + 20 * device, 20);
  }
}

TEST(Devices, KernelsOnACard) {
  const auto device = OpenCard();
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  const uint64_t seed = QuickTestSeed();
  const Repeatable repeatable(seed);
  // Each takes and gives back memory of the card some fifty times.
  AllRounds(**device, seed, 200);
  std::vector<std::byte> result, expected;
  const Status status = RunRingPipeline(**device, Left::kNone, seed, &result, &expected);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace cairn::testing
