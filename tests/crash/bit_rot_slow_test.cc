// SPDX-License-Identifier: Apache-2.0
//
// Property and method of bit_rot_test.cc, with a flip in every third byte that is not among zeros
// (of the killed store in every fifth) and all other damages.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/bit_rot.h"

namespace cairn::crash {
namespace {

void CheckAll(bool killed) {
  const BitRotResult result = RunBitRot({.killed = killed, .flip_stride = killed ? 5u : 3u});
  std::printf("bit rot: %llu damages; %s\n", static_cast<unsigned long long>(result.tried()),
              result.ToString().c_str());
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.shortened > 0, killed);
  ::testing::Test::RecordProperty("damages", std::to_string(result.tried()));
}

TEST(BitRotSlow, OfAStoreThatWasClosed) { CheckAll(false); }
TEST(BitRotSlow, OfAStoreThatWasKilled) { CheckAll(true); }

}  // namespace
}  // namespace cairn::crash
