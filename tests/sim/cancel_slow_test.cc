// SPDX-License-Identifier: Apache-2.0
//
// Property and method of cancel_test.cc, at every operation.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/cancel.h"

namespace cairn::sim {
namespace {

TEST(CancelSlow, AtEveryOperation) {
  const CancelResult result = RunCancels({});
  std::printf("%s\n", result.Counts().c_str());
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.runs, 500U);
  EXPECT_GT(result.cancelled, 0U);
  EXPECT_GT(result.timed_out, 0U);
  EXPECT_GT(result.unknown, 0U);
}

}  // namespace
}  // namespace cairn::sim
