// SPDX-License-Identifier: Apache-2.0
//
// Property: after a power cut at any moment the store opens and holds the state after some prefix
// of the operations, that prefix contains everything acknowledged at kPower, every KV byte is
// right, read-only openings write nothing, and opening twice finds the same, the second time with
// nothing left to do. A finished copy is whole, an unfinished one opens as the store was or not at
// all. Method: random and scripted runs on the simulated machine, from its making to its closing;
// before every disk operation the power is cut, and of the unsynced writes every subset survives,
// or drawn ones when there are many, or torn ones. Recovery is cut again, up to three crashes deep.
// No two counted disks of one life are the same. The same check must fail on a disk that
// acknowledges syncs without doing them, and where weaker acknowledgements are taken for kPower.
#include "tests/crash/power_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/script_cuts.h"
#include "tests/crash/scripts.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

PowerLossResult RunAndTell(const PowerLossOptions& options, uint64_t states) {
  const PowerLossResult all = RunPowerLosses(options, states);
  std::printf("%s\n", all.Counts().c_str());
  ::testing::Test::RecordProperty("states", std::to_string(all.states));
  return all;
}

// The first violation in a few runs.
std::string WhatIsFoundOut(PowerLossOptions options) {
  std::string violation;
  for (options.seed = 1; options.seed <= 5 && violation.empty(); ++options.seed) {
    violation = RunPowerLoss(options).violation;
  }
  return violation;
}

TEST(PowerLoss, EveryDiskFoundHoldsAPrefixWithAllThatWasAcknowledged) {
  const PowerLossResult all =
      RunAndTell({.steps = 60, .exhaustive_writes_max = 4, .samples = 8}, 12'000);
  EXPECT_EQ(all.violation, "");
  EXPECT_GT(all.exhaustive, 0U);
  EXPECT_GT(all.copies, 0U);
  EXPECT_GT(all.second_recoveries, 0U);
  EXPECT_GT(all.evicted_bytes, 0U);
  EXPECT_GT(all.filled_bytes, 0U);
  EXPECT_GT(all.joined_nodes, 0U);
  EXPECT_GT(all.sealed, 0U);
}

TEST(PowerLoss, FurtherCrashesDuringRecoveryCostNothingMore) {
  const PowerLossResult all = RunAndTell({.seed = testing::QuickTestSeed() + 100,
                                          .steps = 12,
                                          .exhaustive_writes_max = 3,
                                          .samples = 4,
                                          .depth = 3},
                                         12'000);
  EXPECT_EQ(all.violation, "");
  EXPECT_GT(all.depths[1], 0U);
  EXPECT_GT(all.depths[2], 0U);
}

TEST(PowerLoss, EveryScriptLosesNothingAtSomeOfItsOperations) {
  const PowerLossResult all = RunScriptCuts({.seed = testing::QuickTestSeed(),
                                             .point_stride = 11,
                                             .exhaustive_writes_max = 6,
                                             .samples = 8});
  std::printf("%s\n", all.Counts().c_str());
  EXPECT_EQ(all.violation, "");
  EXPECT_GT(all.exhaustive, ScriptNames().size());
  EXPECT_GT(all.copies, 0U);
  EXPECT_GT(all.second_recoveries, 0U);
}

TEST(PowerLoss, ADiskThatDropsSyncsIsFoundOut) {
  EXPECT_NE(WhatIsFoundOut({.drop_syncs = true}), "");
  for (const std::string& script : ScriptNames()) {
    if (script == "read after a crash") continue;  // Which writes nothing.
    const ScriptCutsOptions options = {
        .scripts = {script}, .exhaustive_writes_max = 4, .samples = 16, .drop_syncs = true};
    EXPECT_NE(RunScriptCuts(options).violation, "") << script;
  }
}

TEST(PowerLoss, AnAcknowledgementThatPowerLossMayTakeIsFoundOut) {
  using ::testing::HasSubstr;
  EXPECT_THAT(WhatIsFoundOut({.claimed = Durability::kMemory}),
              HasSubstr("acknowledged operations are lost"));
  EXPECT_THAT(WhatIsFoundOut({.claimed = Durability::kProcess}),
              HasSubstr("acknowledged operations are lost"));
}

}  // namespace
}  // namespace cairn::crash
