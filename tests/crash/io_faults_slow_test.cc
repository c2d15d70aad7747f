// SPDX-License-Identifier: Apache-2.0
//
// Property and method of io_faults_test.cc, all scripts. Of seven commits one fails each operation;
// all at once: tools/soak io-faults.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/io_faults.h"
#include "tests/crash/scripts.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(IoFaultsSlow, AllScripts) {
  const IoFaultsResult result = RunIoFaults({.point_stride = 7, .seed = testing::TestSeed()});
  std::printf("%s\n", Counts(result).c_str());
  ::testing::Test::RecordProperty("fault_runs", std::to_string(result.runs));
  EXPECT_EQ(result.violation, "");
  EXPECT_GE(ScriptNames().size(), 20U);
  EXPECT_GT(result.poisoned, 0U);
  EXPECT_GT(result.refused, 0U);
}

}  // namespace
}  // namespace cairn::crash
