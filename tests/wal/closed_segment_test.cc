// SPDX-License-Identifier: Apache-2.0
//
// Property: an orderly close gives back what was not written of the last segment. A file that ends
// behind its clean end is whole; one that ends anywhere else was cut, which is reported.
// Method: logs on a simulated disk, closed, cut, damaged, and crashed at the end.
#include <algorithm>

#include "base/io/path.h"
#include "sim/world.h"
#include "tests/support/status.h"
#include "tests/wal/log_test.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

class ClosedSegmentTest : public ::testing::Test {
 protected:
  ClosedSegmentTest() : machine_(io::MakeSimWorld(1)), fixture_(machine_.world()) {}

  void Append(size_t bytes) {
    const uint64_t sequence = fixture_.Append(Payload(fixture_.appended.size() + 1, bytes));
    ASSERT_OK(fixture_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  }
  // Three records, and the log closed. The length of the file.
  uint64_t Closed() {
    fixture_.OpenLog();
    for (int i = 0; i < 3; ++i) Append(1000);
    EXPECT_OK(fixture_.log->Close());
    fixture_.log.reset();
    return Length(1);
  }
  uint64_t Length(uint64_t segment) { return fixture_.world.files->Info(Path(segment))->bytes; }
  std::string Path(uint64_t segment) { return SegmentPath("log", segment); }
  Recovered Recover(bool salvage = false) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.salvage = salvage;
    return RecoverLog(fixture_.world, options);
  }
  void ExpectPrefix(const Recovered& found, size_t count) {
    ASSERT_OK(found.status);
    ASSERT_EQ(found.records.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(found.records[i], fixture_.appended[i]) << i;
  }

  io::SimWorld machine_;
  LogFixture fixture_;
};

TEST_F(ClosedSegmentTest, TheTailIsGivenBack) {
  Grant grant(5 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant;
  // Header, three groups, the clean end.
  EXPECT_EQ(Closed(), 5 * kBlock);
  const Recovered found = Recover();
  ExpectPrefix(found, 3);
  EXPECT_FALSE(found.log.torn_tail);
  ASSERT_EQ(found.log.segments.size(), 1U);
  EXPECT_EQ(found.log.segments[0].file_bytes, 5 * kBlock);
  EXPECT_EQ(found.log.segments[0].end_offset, 5 * kBlock);
  EXPECT_TRUE(SameState(found.log, Recover().log)) << "a second recovery finds the same";
  // Counted as what it is, while the log goes on in another file.
  Grant grant_after(5 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant_after;
  fixture_.OpenLog(found.log);
  Append(1000);
  machine_.scheduler->Sleep(1'000 * kMs);  // Until the pool has made what it makes.
  const Log::Counters counters = fixture_.log->counters();
  EXPECT_EQ(counters.segment_bytes_live, 5 * kBlock + fixture_.options.segment_bytes);
  EXPECT_EQ(grant_after.taken_, counters.segment_bytes_total);
  EXPECT_EQ(fixture_.log->live_bytes(), 5 * kBlock + 2 * kBlock);
  const uint64_t before = grant_after.taken_;
  ASSERT_OK(fixture_.log->ReleaseBelow(2));
  EXPECT_EQ(grant_after.taken_, before - 5 * kBlock);
  EXPECT_FALSE(fixture_.world.files->Info(Path(1)).ok()) << "no spare has that size";
  EXPECT_EQ(fixture_.log->live_bytes(), 2 * kBlock);
  fixture_.log.reset();  // Before the grants.
}

TEST_F(ClosedSegmentTest, ManyInARowAreOneLog) {
  for (int run = 0; run < 20; ++run) {
    run == 0 ? fixture_.OpenLog() : static_cast<void>(fixture_.Reopen());
    Append(100);
    ASSERT_OK(fixture_.log->Close());
  }
  fixture_.log.reset();
  const Recovered found = Recover();
  ExpectPrefix(found, 20);
  EXPECT_EQ(found.log.segments.size(), 20U);
  for (const SegmentInfo& segment : found.log.segments) EXPECT_EQ(segment.file_bytes, 3 * kBlock);
}

// Within its first group, too: that is no torn write, since a clean end followed it.
TEST_F(ClosedSegmentTest, CutWithinItsFirstGroup) {
  for (const bool second : {false, true}) {
    io::SimWorld machine = io::MakeSimWorld(1);
    LogFixture fixture(machine.world());
    fixture.OpenLog();
    const auto append = [&] {
      const uint64_t sequence = fixture.Append(Payload(fixture.appended.size() + 1, 20'000));
      ASSERT_OK(fixture.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
      ASSERT_OK(fixture.log->Close());
    };
    append();
    if (second) {
      fixture.Reopen();
      append();
    }
    fixture.log.reset();
    const std::string path = SegmentPath("log", second ? 2 : 1);
    ASSERT_OK(machine.disk->TruncateRaw(path, 3 * kBlock));
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    EXPECT_FAILS(RecoverLog(fixture.world, options).status, StatusCode::kCorruption,
                 path + ": offset 0: the file has 12288 bytes");
  }
}

// The last of a log, and one that another follows.
TEST_F(ClosedSegmentTest, AnyOtherLengthWasCut) {
  const uint64_t closed = Closed();
  for (const bool followed : {false, true}) {
    if (followed) {
      fixture_.Reopen();
      Append(1000);
      ASSERT_OK(fixture_.log->Close());
      fixture_.log.reset();
    }
    const size_t records = fixture_.appended.size();
    ExpectPrefix(Recover(), records);
    const std::vector<std::byte> whole = *machine_.disk->ReadRaw(Path(1));
    ASSERT_EQ(whole.size(), closed);
    for (uint64_t length = 0; length <= fixture_.options.segment_bytes + kBlock; length += 2048) {
      ASSERT_OK(machine_.disk->TruncateRaw(Path(1), length));
      const Recovered found = Recover();
      // With its initial length it is the file that a crash before the cut leaves. Bytes behind the
      // end that the next segment names are void.
      const uint64_t full = fixture_.options.segment_bytes;
      const bool behind = length > closed && length < full && length % kBlock == 0;
      if (length == closed || length == full || (followed && behind)) {
        ExpectPrefix(found, records);
      } else {
        EXPECT_FAILS(found.status, StatusCode::kCorruption, Path(1));
      }
      ASSERT_OK(machine_.disk->TruncateRaw(Path(1), closed));
      ASSERT_OK(machine_.disk->WriteRaw(Path(1), 0, whole));
    }
  }
}

TEST_F(ClosedSegmentTest, WithoutItsCleanEndItIsRefusedAndASalvageKeepsItsRecords) {
  const uint64_t closed = Closed();
  ASSERT_OK(machine_.disk->FlipBit(Path(1), closed - kBlock + 20, 3));
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               Path(1) +
                   ": offset 0: the file has 20480 bytes, its header says 262144: it was "
                   "cut, there is no clean end");
  const Recovered salvaged = Recover(/*salvage=*/true);
  ExpectPrefix(salvaged, 3);
  EXPECT_TRUE(salvaged.log.repaired);
  // The part that it kept is the log from then on.
  fixture_.OpenLog(salvaged.log);
  Append(1000);
  ASSERT_OK(fixture_.log->Close());
  fixture_.log.reset();
  ExpectPrefix(Recover(), 4);
}

// Whatever a power loss keeps of the end of a close: its records survive.
TEST_F(ClosedSegmentTest, APowerLossInTheCloseLosesNothing) {
  uint64_t states = 0, short_ones = 0;
  fixture_.OpenLog();
  ASSERT_OK(fixture_.world.files->SyncDirectory(io::ParentPath("log")));
  for (int i = 0; i < 3; ++i) Append(1000);
  const auto look = [&](const io::SimDisk& disk) {
    for (const uint64_t mask : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, UINT64_MAX}) {
      io::World world = io::CrashWorld(disk, io::CrashChoice::Mask(mask)).world();
      RecoveryOptions options;
      options.directory = "log";
      options.store = kTestStore;
      const Recovered found = RecoverLog(world, options);
      ExpectPrefix(found, 3);
      ++states;
      if (found.log.segments.size() == 1 && found.log.segments[0].file_bytes == 5 * kBlock) {
        ++short_ones;
      }
    }
  };
  machine_.disk->set_on_operation([&](const io::SimOperation&) { look(*machine_.disk); });
  ASSERT_OK(fixture_.log->Close());
  machine_.disk->set_on_operation(nullptr);
  look(*machine_.disk);
  EXPECT_GE(states, 16U);
  EXPECT_GE(short_ones, 1U);
}

// It is no loss: the file is as long as one that a crash leaves.
TEST_F(ClosedSegmentTest, ATailThatWouldNotGoIsTold) {
  Observer observer;
  fixture_.options.observer = &observer;
  fixture_.OpenLog();
  Append(1000);
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& op) {
                                 return op.op == io::SimOp::kTruncate &&
                                        op.path == SegmentPath("log", 1);
                               },
                           .error = EIO});
  ASSERT_OK(fixture_.log->Close());
  EXPECT_EQ(observer.Count("the end of a segment is not given back"), 1U);
  fixture_.log.reset();
  EXPECT_EQ(Length(1), fixture_.options.segment_bytes);
  ExpectPrefix(Recover(), 1);
}

}  // namespace
}  // namespace cairn::wal
