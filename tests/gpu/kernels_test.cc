// SPDX-License-Identifier: Apache-2.0
//
// Property: kernels give the bits that base/codec gives, in every layout that a view can describe,
// those of shadows the bits of base/shadow; they touch nothing else. Method: drawn cases on the
// host's grid, in which every lane comes when it was drawn. The long form is in tools/soak.
#include <gtest/gtest.h>

#include "gpu/describe.h"
#include "tests/gpu/kernel_rounds.h"
#include "tests/gpu/shadow_rounds.h"
#include "tests/gpu/slot_rounds.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

using Round = std::string (*)(KernelMachine&, uint64_t);

void Rounds(Round round, uint64_t count) {
  const uint64_t seed = QuickTestSeed();
  const Repeatable repeatable(seed);
  const std::unique_ptr<KernelMachine> machine = MakeGridMachine(seed);
  for (uint64_t i = 0; i < count; ++i) {
    const std::string differs = round(*machine, seed + i);
    ASSERT_EQ(differs, "") << "round " << i << ": " << repeatable.command();
  }
}

TEST(Kernels, DecodeScatterIsDecodeFrameAndScatterSlice) { Rounds(DecodeScatterRound, 1000); }

TEST(Kernels, DamagedFramesAreFaultsAndTouchNothingElse) { Rounds(DamagedFramesRound, 400); }

TEST(Kernels, ATableThatLeadsOutOfTheViewIsAFault) { Rounds(LostTableRound, 300); }

TEST(Kernels, RotateKeysIsTurn) { Rounds(RotateKeysRound, 500); }

TEST(Kernels, GatherSaveIsGatherSlice) { Rounds(GatherSaveRound, 1000); }

TEST(Kernels, GatherStepIsGatherSliceIntoTheSlotOfTheStep) { Rounds(GatherStepRound, 500); }

TEST(Kernels, CheckTableFindsWhatLiesOutsideAndWhatIsThereTwice) { Rounds(CheckTableRound, 500); }

TEST(Kernels, ResolveSlotsForgetsWhatWasWantedLongestAgo) { Rounds(ResolveSlotsRound, 150); }

TEST(Kernels, GatherPiecesBringsWhatIsWanted) { Rounds(GatherPiecesRound, 150); }

TEST(Kernels, ScoreChunksAndSelectChunksAreThoseOfTheShadow) { Rounds(ScoreChunksRound, 100); }

TEST(Kernels, SelectChunksBreaksTies) { Rounds(SelectChunksRound, 150); }

TEST(Kernels, RebuildKeysIsRebuildChunk) { Rounds(RebuildKeysRound, 300); }

TEST(Kernels, RebuildLowRankIsRebuildRowAndTurn) { Rounds(RebuildLowRankRound, 150); }

}  // namespace
}  // namespace cairn::testing
