// SPDX-License-Identifier: Apache-2.0
//
// The bug: a segment whose only group a crash had torn, in its payload alone, and behind which the
// log had gone on, was part of the log as long as the headers of that dead group could be read. A
// copy has none of it: there the log ended before that segment, and the checkpoint did not open.
// Rot in those dead bytes, or in the header before them, cut the log itself, where no checkpoint of
// it reported the rest.
#include "tests/support/log_fixture.h"

#include <gtest/gtest.h>

#include "sim/world.h"
#include "wal/format.h"
#include "wal/log_copy.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

class ACopyEndedAtAnEmptySegment : public ::testing::Test {
 protected:
  ACopyEndedAtAnEmptySegment() : machine_(io::MakeSimWorld(1)), fixture_(machine_.world()) {}

  void Append(size_t bytes, bool durable) {
    const uint64_t sequence = fixture_.Append(Payload(fixture_.appended.size() + 1, bytes));
    ASSERT_TRUE(fixture_.log->Wait(sequence, durable, io::kNoDeadline).ok());
  }
  void Kill() {
    auto disk = machine_.disk->CrashClone(io::CrashChoice::KeepAll(), machine_.scheduler.get());
    fixture_.log.reset();
    machine_.disk = std::move(disk);
    fixture_.world.files = machine_.disk;
  }
  Recovered RecoverIn(const std::string& directory, uint64_t first_segment) {
    RecoveryOptions options;
    options.directory = directory;
    options.store = kTestStore;
    options.first_segment = first_segment;
    return RecoverLog(fixture_.world, options);
  }

  // The first segment has one record, the second a torn group, the third another record.
  void SetUp() override {
    fixture_.OpenLog();
    Append(200'000, /*durable=*/true);
    Append(100'000, /*durable=*/false);
    Kill();
    ASSERT_TRUE(machine_.disk->FlipBit(SegmentPath("log", 2), kFirstGroupOffset + 5000, 3).ok());
    const Recovered found = fixture_.RecoverAll();
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    ASSERT_EQ(1U, found.records.size());
    fixture_.appended.resize(1);
    fixture_.OpenLog(found.log);
    Append(100, /*durable=*/true);
    ASSERT_EQ(3U, fixture_.log->Segments().back().number);
    Kill();
  }

  io::SimWorld machine_;
  LogFixture fixture_;
};

TEST_F(ACopyEndedAtAnEmptySegment, ItGoesOn) {
  const Recovered found = fixture_.RecoverAll();
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  ASSERT_EQ(3U, found.log.segments.size());
  for (const size_t first : {0, 1}) {  // Also where the one before was given back.
    LogCopy copy;
    copy.from = "log";
    copy.to = "copy-" + std::to_string(first);
    copy.store = kTestStore;
    copy.segments = {found.log.segments.begin() + static_cast<ptrdiff_t>(first),
                     found.log.segments.end()};
    copy.copied = [](uint64_t) { return Status::Ok(); };
    ASSERT_TRUE(machine_.disk->CreateDirectory(copy.to).ok());
    const Status copied = CopyLog(fixture_.world, copy);
    ASSERT_TRUE(copied.ok()) << copied.ToString();
    const Recovered again = RecoverIn(copy.to, first + 1);
    ASSERT_TRUE(again.status.ok()) << again.status.ToString();
    ASSERT_EQ(2 - first, again.records.size());
    EXPECT_EQ(fixture_.appended.back(), again.records.back());
  }
}

TEST_F(ACopyEndedAtAnEmptySegment, AndSoDoesALogWhoseDeadBytesRot) {
  for (const uint64_t offset : {8, 40, 64 + 12}) {  // In the group's header and its record's.
    const std::string path = SegmentPath("log", 2);
    ASSERT_TRUE(machine_.disk->FlipBit(path, kFirstGroupOffset + offset, 1).ok());
    const Recovered found = fixture_.RecoverAll();
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    ASSERT_EQ(2U, found.records.size());
    EXPECT_EQ(fixture_.appended.back(), found.records.back());
    ASSERT_TRUE(machine_.disk->FlipBit(path, kFirstGroupOffset + offset, 1).ok());
  }
}

TEST_F(ACopyEndedAtAnEmptySegment, WithoutItsHeaderALossIsTold) {
  const std::string path = SegmentPath("log", 2);
  ASSERT_TRUE(machine_.disk->FlipBit(path, 40, 1).ok());
  const Recovered found = fixture_.RecoverAll();
  EXPECT_EQ(StatusCode::kCorruption, found.status.code()) << found.status.ToString();
  EXPECT_NE(std::string::npos, found.status.message().find(path + ": offset 0"))
      << found.status.ToString();
}

}  // namespace
}  // namespace cairn::wal
