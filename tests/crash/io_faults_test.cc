// SPDX-License-Identifier: Apache-2.0
//
// Property: whatever operation of the disk fails, once or from then on, the store neither crashes
// nor hangs nor shows wrong bytes; every call says yes or names what is wrong; and when the disk is
// well again, what was acknowledged at kPower survives, the state is one of the run's, reads work
// also where the store is poisoned, and a store opened again keeps its promises.
// Method: scripted runs on the simulated machine, one for each part of the engine; for every
// operation of a run, reads and opens included, eight kinds of faults, each once and for ever,
// until a run meets no fault. The state is looked at in the living store, after power was lost, and
// when the store was opened again, also after power was lost then.
#include "tests/crash/io_faults.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::crash {
namespace {

TEST(IoFaults, FewScriptsAtEveryOperation) {
  const IoFaultsResult result = RunIoFaults({.scripts = {"append", "tree"}});
  std::printf("%s\n", Counts(result).c_str());
  ::testing::Test::RecordProperty("fault_runs", std::to_string(result.runs));
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.poisoned, 0U);
  EXPECT_GT(result.refused, 0U);
  EXPECT_GT(result.unnoticed, 0U);
}

TEST(IoFaults, AnAcknowledgementThatMemoryKeepsIsFoundOut) {
  EXPECT_NE(RunIoFaults({.scripts = {"append"}, .claim_memory = true}).violation, "");
}

}  // namespace
}  // namespace cairn::crash
