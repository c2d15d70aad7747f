// SPDX-License-Identifier: Apache-2.0
//
// Property: what rots on the disk is named or does not matter. After one damage to one file of a
// store, opening and reading give what was written or a Status that names the file, and Verify
// reports whatever a read refuses. Only the last group of a log that was not closed may go without
// a word; with it the one before, if one damage (two sectors swapped) hits both.
// Method: flips, sectors zeroed, swapped, taken from an earlier time or from another file, and
// cuts, at places that are spread over all files.
#include "tests/crash/bit_rot.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::crash {
namespace {

void Check(const BitRotOptions& options) {
  const BitRotResult result = RunBitRot(options);
  std::printf("bit rot: %llu damages; %s\n", static_cast<unsigned long long>(result.tried()),
              result.ToString().c_str());
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.refused, 0u);
  EXPECT_GT(result.failed_reads, 0u);
  EXPECT_GT(result.set_aside, 0u);
  EXPECT_GT(result.nothing, 0u);
  EXPECT_EQ(result.nothing_in.count("MANIFEST"), 0u) << "all of it is under a checksum";
  EXPECT_EQ(result.nothing_in.count("index"), 0u) << "all of it is under a checksum";
  EXPECT_EQ(result.shortened > 0, options.killed);
  ::testing::Test::RecordProperty("damages", std::to_string(result.tried()));
}

TEST(BitRot, OfAStoreThatWasClosed) {
  Check({.flip_stride = 13, .sector_stride = 3, .set_aside_stride = 11});
}

TEST(BitRot, OfAStoreThatWasKilled) {
  Check({.killed = true, .flip_stride = 17, .sector_stride = 5, .set_aside_stride = 11});
}

}  // namespace
}  // namespace cairn::crash
