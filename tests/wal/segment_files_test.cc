// SPDX-License-Identifier: Apache-2.0
//
// Property: of what lies in the directory of a log exactly its own files are taken for its own, and
// whether one of them was ever used is reported or refused, never guessed.
// Method: names beside the right ones, and a simulated disk whose calls fail one by one.
#include "wal/segment_files.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/io/file_util.h"
#include "sim/world.h"
#include "tests/support/status.h"
#include "wal/constants.h"

namespace cairn::wal {
namespace {

TEST(SegmentFiles, NamesBesideTheRightOnes) {
  EXPECT_TRUE(IsLogFileName("000000000000001f.log"));
  EXPECT_TRUE(IsLogFileName("spare-000000000000001f.log"));
  EXPECT_TRUE(IsLogFileName("spare-000000000000001f.log.tmp"));
  for (const char* name :
       {"000000000000001F.log", "000000000000001g.log", "+00000000000001f.log", "1f.log",
        "000000000000001f.txt", "000000000000001f.logs", "spare-1f.log", "app.log", ".log", ""}) {
    EXPECT_FALSE(IsLogFileName(name)) << name;
  }
}

TEST(SegmentFiles, OthersFilesAreNotOfTheLog) {
  io::SimDisk disk;
  ASSERT_OK_ASSIGN(const LogDirectory none, ListLogDirectory(disk, "log"));
  EXPECT_TRUE(none.segments.empty() && none.spares.empty() && none.unfinished.empty());
  ASSERT_OK(disk.CreateDirectory("log"));
  for (const char* name : {"0000000000000000.log", "0000000000000002.log", "0000000000000001.log",
                           "000000000000000A.log", "spare-0000000000000007.log", "spare-7.log",
                           "spare-0000000000000008.log.tmp", "readme"}) {
    ASSERT_OK(disk.Open(std::string("log/") + name, {.write = true, .create = true}));
  }
  ASSERT_OK_ASSIGN(const LogDirectory found, ListLogDirectory(disk, "log"));
  EXPECT_EQ(found.segments, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(found.spares, std::vector<uint64_t>{7});
  EXPECT_EQ(found.unfinished, std::vector<std::string>{"spare-0000000000000008.log.tmp"});
}

TEST(SegmentFiles, WhetherOneWasUsedIsToldOrRefused) {
  io::SimDisk disk;
  const std::string path = SegmentPath("log", 1);
  ASSERT_OK(disk.CreateDirectory("log"));
  ASSERT_OK(MakeSegmentFile(disk, path, 2 * kBlock, 2 * kBlock));
  ASSERT_OK_ASSIGN(const bool zeros, HoldsRecords(disk, path));
  EXPECT_FALSE(zeros);
  for (const io::SimOp op : {io::SimOp::kOpen, io::SimOp::kStat, io::SimOp::kRead}) {
    disk.AddFault(
        {.when = [op](const io::SimOperation& one) { return one.op == op; }, .error = EIO});
    EXPECT_FAILS(HoldsRecords(disk, path), StatusCode::kIoError, path) << io::SimOpName(op);
  }
  ASSERT_OK(disk.FlipBit(path, 100, 3));
  ASSERT_OK_ASSIGN(const bool used, HoldsRecords(disk, path));
  EXPECT_TRUE(used);
  ASSERT_OK_ASSIGN(const auto file, disk.Open(path, {.write = true}));
  ASSERT_OK(file->Truncate(100));
  ASSERT_OK_ASSIGN(const bool cut, HoldsRecords(disk, path));
  EXPECT_TRUE(cut) << "it got its name when it was whole";
}

}  // namespace
}  // namespace cairn::wal
