// SPDX-License-Identifier: Apache-2.0
//
// Property and method of format_rot_test.cc. Of three commits one flips each bit and cuts to each
// length; more of them: tools/soak format-rot.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/crash/format_rot.h"
#include "tests/support/test_seed.h"

namespace cairn::crash {
namespace {

TEST(FormatRotSlow, EveryThirdBitOfEveryFormat) {
  uint64_t verdicts = 0;
  const FormatRotOptions options{.seed = testing::TestSeed(), .bit_stride = 3, .cut_stride = 3};
  for (const FormatRot& rot : RunFormatRot(options)) {
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
