// SPDX-License-Identifier: Apache-2.0
//
// Property: a call that was cancelled, or whose time was up, or whose store was closed, uses
// neither its source nor its target any more, and what it reports is true. Method: appends of every
// size, drafts, batches, fills, restores, flushes, compaction and copies; each is ended at every
// operation of the disk, in every possible way, and its memory filled with a pattern at once (with
// ASan also made inaccessible). The pattern must stay, and be nowhere in the store's files; the
// store, opened again, holds the call's change or not as its status says. The check is shown to
// fail when the memory is taken away too early.
#include "tests/sim/cancel.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace cairn::sim {
namespace {

TEST(Cancel, AtSomeOperations) {
  const CancelResult result = RunCancels({.stride = 5});
  std::printf("%s\n", result.Counts().c_str());
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.done, 0U);
  EXPECT_GT(result.cancelled, 0U);
  EXPECT_GT(result.unknown, 0U);
  EXPECT_GT(result.timed_out, 0U);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Cancel, MemoryThatIsTakenAwayTooEarlyIsFoundOut) {
  EXPECT_NE(RunCancels({.stride = 3, .too_early = true}).violation, "");
}
#endif

}  // namespace
}  // namespace cairn::sim
