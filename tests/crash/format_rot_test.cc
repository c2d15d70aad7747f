// SPDX-License-Identifier: Apache-2.0
//
// Property: with any one bit flipped, or cut to any length, a file or a frame of a table is refused
// with a Status that names it, or read exactly as it was. Only if its owner has the checksum
// (frames, token blocks), or people may edit it (OPTIONS), may it be read as something else.
// Method: an instance of every format, read by its own reader; here every 17th bit.
#include "tests/crash/format_rot.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::crash {
namespace {

TEST(FormatRot, BitsAndLengthsOfEveryFormat) {
  uint64_t verdicts = 0;
  for (const FormatRot& rot : RunFormatRot({.bit_stride = 17, .cut_stride = 509})) {
    std::printf("rot of %s\n", rot.ToString().c_str());
    EXPECT_EQ(rot.violation, "") << rot.format;
    EXPECT_GT(rot.refused, 0u) << rot.format;
    verdicts += rot.flips + rot.cuts;
  }
  std::printf("format rot: %llu verdicts\n", static_cast<unsigned long long>(verdicts));
  RecordProperty("verdicts", std::to_string(verdicts));
}

}  // namespace
}  // namespace cairn::crash
