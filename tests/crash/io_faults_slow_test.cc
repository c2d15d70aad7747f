// SPDX-License-Identifier: Apache-2.0
//
// Property and method of io_faults_test.cc, all scripts at every other operation: of each two kinds
// of faults one strikes the even ones, the other the odd ones.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/io_faults.h"

namespace cairn::crash {
namespace {

TEST(IoFaultsSlow, AllScripts) {
  const IoFaultsResult result = RunIoFaults({.stride = 2});
  std::printf("%s\n", Counts(result).c_str());
  ::testing::Test::RecordProperty("fault_runs", std::to_string(result.runs));
  EXPECT_EQ(result.violation, "");
  EXPECT_GE(IoFaultScripts().size(), 20U);
}

}  // namespace
}  // namespace cairn::crash
