// SPDX-License-Identifier: Apache-2.0
//
// Property: a file that is replaced is the old one or the new one after any crash. Method: every
// crash state of a simulated disk, at each of its operations.
#include <gtest/gtest.h>

#include "base/io/file_util.h"
#include "sim/disk.h"
#include "tests/base/io_backends.h"

namespace cairn::io {
namespace {

using testing::Pattern;

TEST(FileUtil, WriteFileDurablyLeavesOldOrNewAtEveryCrashPoint) {
  SimDisk disk;
  const auto old_bytes = Pattern(5000, 1), new_bytes = Pattern(7000, 2);
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", old_bytes).ok());
  int crashes = 0, found_old = 0, found_new = 0;
  const auto crash = [&] {
    ASSERT_LE(disk.unsynced_writes(), 12u);
    for (uint64_t mask = 0; mask < (1u << disk.unsynced_writes()); ++mask) {
      const auto bytes = disk.CrashClone(CrashChoice::Mask(mask))->ReadRaw("CURRENT");
      ASSERT_TRUE(bytes.ok());
      ++crashes;
      if (*bytes == old_bytes) ++found_old;
      if (*bytes == new_bytes) ++found_new;
    }
  };
  disk.set_on_operation([&](const SimOperation&) { crash(); });
  ASSERT_TRUE(WriteFileDurably(disk, "CURRENT", new_bytes).ok());
  EXPECT_EQ(found_old + found_new, crashes);
  EXPECT_GT(found_old, 0);
  EXPECT_GT(found_new, 0);
  disk.set_on_operation(nullptr);
  EXPECT_EQ(*disk.CrashClone(CrashChoice::LoseAll())->ReadRaw("CURRENT"), new_bytes);
}

}  // namespace
}  // namespace cairn::io
