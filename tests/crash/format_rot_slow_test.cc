// SPDX-License-Identifier: Apache-2.0
//
// Property and method of format_rot_test.cc, at every bit, and more lengths.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/format_rot.h"

namespace cairn::crash {
namespace {

TEST(FormatRotSlow, EveryBitOfEveryFormat) {
  uint64_t verdicts = 0;
  for (const FormatRot& rot : RunFormatRot({.bit_stride = 1, .cut_stride = 1})) {
    std::printf("rot of %s\n", rot.ToString().c_str());
    EXPECT_EQ(rot.violation, "") << rot.format;
    EXPECT_GT(rot.flips, 0U) << rot.format;
    EXPECT_GT(rot.cuts, 0U) << rot.format;
    verdicts += rot.flips + rot.cuts;
  }
  std::printf("format rot: %llu verdicts\n", static_cast<unsigned long long>(verdicts));
  RecordProperty("verdicts", std::to_string(verdicts));
}

}  // namespace
}  // namespace cairn::crash
