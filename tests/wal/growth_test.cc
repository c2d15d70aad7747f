// SPDX-License-Identifier: Apache-2.0
//
// Property: a segment gets its blocks as it fills and in time; where the disk has no more of them
// data is refused, what gives space back goes on, and nothing that was acknowledged is lost. Zeros
// are written ahead of small groups, and of nothing else.
//
// Method: logs of segments that are large enough to grow, on the simulated disk.

#include <algorithm>

#include "sim/world.h"
#include "tests/support/status.h"
#include "tests/wal/log_test.h"
#include "wal/constants.h"
#include "wal/segment_files.h"
#include "wal/segment_pool.h"

namespace cairn::wal {
namespace {

constexpr uint64_t kSegment = 8 << 20;
constexpr uint64_t kFirst = FirstAllocatedBytes(kSegment);
static_assert(kFirst == kSegment / 16);

class GrowthTest : public LogTest {
 protected:
  GrowthTest() {
    fixture_.options.segment_bytes = kSegment;
    fixture_.options.hot_tail_bytes = 2 * kSegment;
  }
  uint64_t Allocated(uint64_t segment) {
    const auto info = machine_.disk->Info(SegmentPath("log", segment));
    EXPECT_TRUE(info.ok());
    return info.ok() ? info->allocated_bytes : 0;
  }
  uint64_t AllocatedInAll() {
    uint64_t bytes = 0;
    for (const std::string& path : machine_.disk->Files()) {
      bytes += machine_.disk->Info(path)->allocated_bytes;
    }
    return bytes;
  }
  // Until one is refused. Why.
  Status Fill(size_t bytes, Log::Purpose purpose) {
    for (;;) {
      const auto sequence = fixture_.TryAppend(Payload(fixture_.appended.size(), bytes), purpose);
      Status status = sequence.status();
      if (sequence.ok()) status = Durable(*sequence);
      if (status.code() == StatusCode::kBusy) status = log().WaitForRoom(io::kNoDeadline);
      if (!status.ok()) return status;
    }
  }
};

TEST_F(GrowthTest, BlocksComeAsTheyAreNeeded) {
  Grant grant(UINT64_MAX);
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  RunFor(100 * kMs);
  EXPECT_EQ(AllocatedInAll(), 3 * kFirst);
  EXPECT_EQ(grant.taken_, 3 * kSegment);
  EXPECT_EQ(grant.promised_, static_cast<int64_t>(3 * (kSegment - kFirst)));
  std::vector<uint64_t> steps;
  uint64_t placed = 0;
  while (log().Segments().size() < 2) {
    ASSERT_OK(Durable(Append(200'000)));
    placed += 200'000;
    RunFor(10 * kMs);
    const uint64_t allocated = Allocated(1);
    EXPECT_GE(allocated, std::min(placed, kSegment));
    if (steps.empty() || steps.back() != allocated) steps.push_back(allocated);
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{4 * kFirst, 16 * kFirst}));
  // The next ones have all that they need.
  RunFor(100 * kMs);
  EXPECT_EQ(Allocated(3), kSegment);
  EXPECT_EQ(log().counters().bytes_prewritten, 0u);
  ASSERT_OK(log().Close());
  fixture_.log.reset();
  ExpectRecovered(fixture_.appended.size());
}

// One that needs more than there is waits for it, and no longer.
TEST_F(GrowthTest, ALargeRecordGetsItsBlocks) {
  fixture_.OpenLog();
  const TestRecord large = Payload(1, 5'000'000);
  EXPECT_FAILS(fixture_.TryAppend(large), StatusCode::kBusy, "prepared");
  ASSERT_OK(Durable(fixture_.Append(large)));
  EXPECT_GE(Allocated(1), 5'000'000u);
  EXPECT_GE(log().counters().segment_late, 1u);
  fixture_.log.reset();
  ExpectRecovered(1);
}

// NextHasBlocks may have found no segment prepared, and then one is, without these blocks.
TEST_F(GrowthTest, ASegmentWithoutTheBlocksIsNotTaken) {
  SegmentPool pool(fixture_.world, fixture_.options,
                   {.on_ready = [] {},
                    .on_grown = [](uint64_t, uint64_t) {},
                    .on_fatal = [](const Status&) {},
                    .check_lock = [] { return Status::Ok(); },
                    .on_event = [](const std::string&) {},
                    .idle_work = nullptr});
  ASSERT_OK(pool.Open(1, 1, /*fill=*/true));
  EXPECT_EQ(pool.TakeNext(0, kFirst + kBlock).file, nullptr);
  const SegmentPool::Ready next = pool.TakeNext(0, kFirst);
  EXPECT_NE(next.file, nullptr);
  EXPECT_EQ(next.segment, 1u);
  EXPECT_EQ(next.allocated, kFirst);
}

TEST_F(GrowthTest, AFullDiskInTheMiddleOfASegmentLosesNothing) {
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(100)));
  RunFor(100 * kMs);
  io::SimFault full;
  full.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kAllocate; };
  full.error = ENOSPC;
  full.persistent = true;
  machine_.disk->AddFault(full);
  EXPECT_FAILS(Fill(50'000, Log::Purpose::kData), StatusCode::kNoSpace, "the disk is full");
  EXPECT_EQ(log().Segments().size(), 1u);
  EXPECT_EQ(Allocated(1), kFirst);
  // Work that gives space back goes into the ballast, and data does not follow it.
  for (uint32_t i = 0; i < kBallastRecords; ++i) {
    ASSERT_OK(Durable(Append(100, Log::Purpose::kRelease)));
  }
  EXPECT_EQ(log().Segments().size(), 2u);
  EXPECT_FAILS(Fill(50'000, Log::Purpose::kData), StatusCode::kNoSpace);
  EXPECT_OK(log().poisoned());

  machine_.disk->ClearFaults();
  log().SpaceWasFreed();
  for (int i = 0; i < 30; ++i) ASSERT_OK(Durable(Append(50'000)));
  fixture_.log.reset();
  ExpectRecovered(fixture_.appended.size());
}

// The same in numbers: a disk that others fill.
TEST_F(GrowthTest, WhatTheDiskDoesNotHaveIsNotTaken) {
  io::SimDiskOptions options;
  options.capacity_bytes = 4 * kFirst;
  io::SimWorld machine = io::MakeSimWorld(3, options);
  LogFixture small(machine.world());
  small.options = fixture_.options;
  small.OpenLog();
  Status refused;
  while (refused.ok() || refused.code() == StatusCode::kBusy) {
    const auto sequence = small.TryAppend(Payload(small.appended.size(), 50'000));
    refused = sequence.ok() ? small.log->Wait(*sequence, true, io::kNoDeadline)
              : sequence.status().code() == StatusCode::kBusy
                  ? small.log->WaitForRoom(io::kNoDeadline)
                  : sequence.status();
  }
  EXPECT_EQ(refused.code(), StatusCode::kNoSpace) << refused.ToString();
  EXPECT_OK(small.log->poisoned());
  ASSERT_OK(small.log->Close());
  small.log.reset();
  const Recovered found = small.RecoverAll();
  ASSERT_OK(found.status);
  EXPECT_EQ(found.records, small.appended);
}

// Else the file would be longer than its clean end says, which is damage.
TEST_F(GrowthTest, ACloseIsNotOvertakenByGrowth) {
  fixture_.OpenLog();
  RunFor(100 * kMs);
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& op) {
                                 return op.op == io::SimOp::kAllocate &&
                                        op.path == SegmentPath("log", 1);
                               },
                           .delay_ns = 500 * kMs});
  Append(kFirst / 2);  // More is asked for.
  ASSERT_OK(log().Close());
  fixture_.log.reset();
  EXPECT_LT(machine_.disk->Info(SegmentPath("log", 1))->bytes, kFirst);
  ExpectRecovered(1);
}

TEST_F(GrowthTest, ZerosAreWrittenAheadOfSmallGroupsAlone) {
  const auto fill_segments = [&](uint64_t count, size_t bytes) {
    const uint64_t until = log().Segments().back().number + count;
    while (log().Segments().back().number < until) ASSERT_OK(Durable(Append(bytes)));
    RunFor(100 * kMs);
  };
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(10)));
  fill_segments(3, 400'000);
  EXPECT_EQ(log().counters().bytes_prewritten, 0u);
  fill_segments(1, 20'000);  // The first part of it are large ones.
  const uint64_t first = log().counters().bytes_prewritten;
  fill_segments(3, 20'000);
  const uint64_t written = log().counters().bytes_prewritten;
  EXPECT_GE(written - first, 2 * kSegment);
  EXPECT_LE(written - first, 3 * kSegment + kPrewriteStepBytes);
  // Nobody appends: no more is written, nor after large ones.
  RunFor(10'000 * kMs);
  EXPECT_EQ(log().counters().bytes_prewritten, written);
  fill_segments(3, 400'000);
  const uint64_t after = log().counters().bytes_prewritten;
  EXPECT_LE(after - written, kSegment);
  fill_segments(2, 400'000);
  EXPECT_EQ(log().counters().bytes_prewritten, after);
  fixture_.log.reset();
  ExpectRecovered(fixture_.appended.size());
}

// They are no part of the log: one that cannot be written ahead is used as it is.
TEST_F(GrowthTest, ZerosThatFailHarmNothing) {
  fixture_.OpenLog();
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& op) {
                                 return op.op == io::SimOp::kWrite &&
                                        op.path.find("spare-") != std::string::npos;
                               },
                           .error = EIO,
                           .persistent = true});
  ASSERT_OK(Durable(Append(10)));
  while (log().Segments().back().number < 5) ASSERT_OK(Durable(Append(20'000)));
  EXPECT_EQ(log().counters().bytes_prewritten, 0u);
  EXPECT_GE(observer_.Count("is not written ahead"), 1u);
  EXPECT_OK(log().poisoned());
  fixture_.log.reset();
  ExpectRecovered(fixture_.appended.size());
}

}  // namespace
}  // namespace cairn::wal
