// SPDX-License-Identifier: Apache-2.0
//
// Property: where space is refused, by the store's cap or by the disk, data is refused in time and
// what gives space back goes on; segments are made, kept and given back as wal/log.h says.
// Method: as in log_test.cc, with a ledger that grants so much, and small disks.
#include "tests/support/status.h"
#include "tests/wal/log_test.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

TEST_F(LogTest, RefusedSpaceIsNoSpaceForDataAndRoomForReleases) {
  Grant grant(5 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  Status full;
  uint64_t accepted = 0;
  while (full.ok()) {
    const auto sequence = TryAppend(20'000);
    if (sequence.ok()) {
      ++accepted;
      ASSERT_TRUE(Durable(*sequence).ok());
    } else if (sequence.status().code() == StatusCode::kBusy) {
      ASSERT_TRUE(log().WaitForRoom(io::kNoDeadline).ok());
    } else {
      full = sequence.status();
    }
    ASSERT_LT(accepted, 1000u);
  }
  EXPECT_EQ(full.code(), StatusCode::kNoSpace) << full.ToString();
  EXPECT_TRUE(log().poisoned().ok());
  EXPECT_LE(grant.taken_, grant.limit_);
  EXPECT_EQ(grant.taken_, log().counters().segment_bytes_total);
  EXPECT_GE(log().counters().no_segment, 1u);
  EXPECT_EQ(log().counters().no_segment, observer_.Count("no new segment"));

  // A release must work at a full disk, even after a restart, and 64 of them.
  fixture_.log.reset();
  Grant grant_after(5 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant_after;
  fixture_.Reopen();
  RunFor(100 * kMs);
  for (uint32_t i = 0; i < kBallastRecords; ++i) {
    const auto release = TryAppend(64, Log::Purpose::kRelease);
    ASSERT_TRUE(release.ok()) << i << " " << release.status().ToString();
    ASSERT_TRUE(Durable(*release).ok());
  }
  // Space comes back by recycling, and data is accepted again.
  ASSERT_TRUE(log().ReleaseBelow(log().Segments().back().number).ok());
  RunFor(100 * kMs);
  const auto sequence = TryAppend(20'000);
  ASSERT_TRUE(sequence.ok()) << sequence.status().ToString();
  ASSERT_TRUE(Durable(*sequence).ok());
  EXPECT_LE(grant_after.taken_, grant_after.limit_);
  const uint64_t last = *sequence;
  const uint64_t first_live = log().Segments().front().number;
  fixture_.log.reset();
  ExpectRecovered(last, first_live);
}

// A segment that a release opened when nothing else was left is not for data, however much of it is
// free; and half of the last segment is not for releases.
TEST_F(LogTest, DataDoesNotUseUpTheBallast) {
  const uint64_t segment = fixture_.options.segment_bytes;
  Grant grant(9 * segment);
  grant.reserve_ = segment;
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  const auto fill = [&](uint32_t bytes, Log::Purpose purpose) {
    while (true) {
      const auto sequence = TryAppend(bytes, purpose);
      if (sequence.ok()) {
        EXPECT_TRUE(Durable(*sequence).ok());
      } else if (sequence.status().code() == StatusCode::kBusy) {
        EXPECT_TRUE(log().WaitForRoom(io::kNoDeadline).ok());
      } else {
        return sequence.status().code();
      }
    }
  };
  EXPECT_EQ(fill(20'000, Log::Purpose::kData), StatusCode::kNoSpace);
  EXPECT_EQ(fill(64, Log::Purpose::kData), StatusCode::kNoSpace);
  const uint64_t full = log().counters().segments_live;
  const auto release = TryAppend(64, Log::Purpose::kRelease);
  ASSERT_TRUE(release.ok());
  ASSERT_TRUE(Durable(*release).ok());
  RunFor(100 * kMs);
  EXPECT_EQ(log().counters().segments_live, full + 1);
  EXPECT_EQ(TryAppend(64).status().code(), StatusCode::kNoSpace) << "its segment has room";

  EXPECT_EQ(fill(64, Log::Purpose::kRelease), StatusCode::kNoSpace);
  RunFor(100 * kMs);
  EXPECT_EQ(log().counters().segments_spare, 0u) << "there is room to give space back";
  EXPECT_LE(grant.taken_, grant.limit_ - grant.reserve_);
  const uint64_t last = log().counters().segments_live;
  const auto reclaim = TryAppend(static_cast<uint32_t>(segment) * 3 / 8, Log::Purpose::kReclaim);
  ASSERT_TRUE(reclaim.ok()) << reclaim.status().ToString();
  ASSERT_TRUE(Durable(*reclaim).ok());
  EXPECT_EQ(log().counters().segments_live, last) << "the last one has room for it";
  RunFor(100 * kMs);
  EXPECT_EQ(log().counters().segments_spare, 1u) << "out of the reserve";
  EXPECT_EQ(grant.taken_, grant.limit_);
  EXPECT_EQ(fill(64, Log::Purpose::kRelease), StatusCode::kNoSpace) << "that is not for them";

  // While the reserve is in use nothing is kept.
  ASSERT_TRUE(log().ReleaseBelow(log().Segments()[1].number).ok());
  EXPECT_LE(grant.taken_, grant.limit_ - grant.reserve_);
  ASSERT_TRUE(log().ReleaseBelow(log().Segments().back().number).ok());
  RunFor(100 * kMs);
  const auto sequence = TryAppend(20'000);
  ASSERT_TRUE(sequence.ok()) << sequence.status().ToString();
  ASSERT_TRUE(Durable(*sequence).ok());
  fixture_.log.reset();  // Before its grant.
}

// Under the log, by somebody. Whether it would have become a spare one or not.
TEST_F(LogTest, SpaceOfASegmentThatWasRemovedIsGivenBack) {
  for (const uint32_t spares : {2u, 8u}) {
    SCOPED_TRACE(spares);
    const io::SimWorld machine = io::MakeSimWorld(7);
    Grant grant(UINT64_MAX);
    LogFixture fixture(machine.world());
    fixture.options.spare_segments_max = spares;
    fixture.options.grant = &grant;
    fixture.OpenLog();
    uint64_t last = 0;
    while (fixture.log->counters().segments_live < 4) last = fixture.Append(Payload(last, 50'000));
    ASSERT_OK(fixture.log->Wait(last, true, io::kNoDeadline));
    machine.scheduler->Sleep(100 * kMs);
    ASSERT_OK(machine.disk->Remove(SegmentPath("log", 2)));
    EXPECT_OK(fixture.log->ReleaseBelow(4));
    machine.scheduler->Sleep(100 * kMs);
    EXPECT_EQ(grant.taken_, fixture.log->counters().segment_bytes_total);
    fixture.log.reset();  // Before its grant.
  }
}

TEST_F(LogTest, SpaceThatIsGrantedLaterIsUsed) {
  Grant grant(4 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  const auto fill = [&] {
    for (;;) {
      const auto sequence = TryAppend(20'000);
      if (sequence.ok()) {
        EXPECT_TRUE(Durable(*sequence).ok());
      } else if (sequence.status().code() == StatusCode::kBusy) {
        EXPECT_TRUE(log().WaitForRoom(io::kNoDeadline).ok());
      } else {
        return sequence.status();
      }
    }
  };
  EXPECT_EQ(fill().code(), StatusCode::kNoSpace);
  const uint64_t before = log().last_reserved_sequence();
  grant.limit_ += 2 * fixture_.options.segment_bytes;
  EXPECT_EQ(TryAppend(20'000).status().code(), StatusCode::kNoSpace);  // This one wakes the pool.
  RunFor(50 * kMs);
  EXPECT_EQ(fill().code(), StatusCode::kNoSpace);
  EXPECT_GT(log().last_reserved_sequence(), before + 10);
  fixture_.log.reset();  // Before its grant.
}

// Work that gives space back may take the last segment. Then the next is made where it is wanted.
TEST_F(LogTest, APoolThatRanDryIsTold) {
  Grant grant(4 * fixture_.options.segment_bytes);
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  Status full;
  for (int i = 0; i < 1000 && full.code() != StatusCode::kNoSpace; ++i) {
    const auto sequence = TryAppend(20'000, Log::Purpose::kReclaim);
    full = sequence.ok() ? Durable(*sequence) : sequence.status();
    if (full.code() == StatusCode::kBusy) RunFor(kMs);
  }
  EXPECT_EQ(full.code(), StatusCode::kNoSpace) << full.ToString();
  RunFor(50 * kMs);  // The pool comes to know that it has nothing, and can make nothing.
  EXPECT_EQ(log().counters().segments_spare, 0u);
  grant.limit_ += 4 * fixture_.options.segment_bytes;
  Status refused(StatusCode::kNoSpace, "");
  for (int i = 0; i < 1000 && !refused.ok(); ++i) {
    refused = TryAppend(20'000).status();
    RunFor(kMs);
  }
  EXPECT_TRUE(refused.ok()) << refused.ToString();
  EXPECT_GT(observer_.Count("log: the pool of spare segments ran dry"), 0u);
  fixture_.log.reset();  // Before its grant.
}

TEST_F(LogTest, WhatHasNoRoomAsAWholeIsToldBeforeAnyOfIt) {
  const uint64_t segment = fixture_.options.segment_bytes;
  Grant grant(4 * segment);
  fixture_.options.grant = &grant;
  fixture_.OpenLog();
  const uint64_t one[] = {200'000}, two[] = {200'000, 200'000}, small[] = {100, 100};
  EXPECT_TRUE(log().CheckRoom(two).ok());
  Status full;
  while (full.code() != StatusCode::kNoSpace) {
    const auto sequence = TryAppend(20'000);
    full = sequence.ok() ? Durable(*sequence) : sequence.status();
    if (full.code() == StatusCode::kBusy) RunFor(kMs);
  }
  EXPECT_TRUE(log().CheckRoom(small).ok());  // Behind the records there.
  EXPECT_EQ(log().CheckRoom(one).code(), StatusCode::kNoSpace);
  grant.limit_ += segment;
  EXPECT_TRUE(log().CheckRoom(one).ok());
  const Status refused = log().CheckRoom(two);
  EXPECT_EQ(refused.code(), StatusCode::kNoSpace);
  EXPECT_NE(refused.ToString().find("segments needed: 2, there is room for 1"), std::string::npos);
  grant.limit_ += segment;
  EXPECT_TRUE(log().CheckRoom(two).ok());
  fixture_.log.reset();  // Before its grant.
}

// The log had as many spare segments as it wants, and never looked at the disk again.
TEST_F(LogTest, RoomThatCameToAFullDiskIsFound) {
  const uint64_t two[] = {200'000, 200'000};
  io::SimWorld machine = io::MakeSimWorld(3);
  LogFixture fixture(machine.world());
  fixture.options.spare_segments_min = fixture.options.spare_segments_max = kBallastSegments;
  fixture.OpenLog();
  io::SimFault full;
  full.when = [](const io::SimOperation& one) { return one.op == io::SimOp::kAllocate; };
  full.error = ENOSPC;
  full.persistent = true;
  Status refused;
  while (refused.code() != StatusCode::kNoSpace) {
    if (fixture.log->Segments().size() == 3) machine.disk->AddFault(full);
    const auto sequence = fixture.TryAppend(Payload(1, 20'000));
    refused =
        sequence.ok() ? fixture.log->Wait(*sequence, true, io::kNoDeadline) : sequence.status();
    if (refused.code() == StatusCode::kBusy) refused = fixture.log->WaitForRoom(io::kNoDeadline);
  }
  const auto room = [&] {
    for (int i = 0; i < 50 && !fixture.log->CheckRoom(two).ok(); ++i) {
      machine.scheduler->Sleep(20 * kMs);
    }
    return fixture.log->CheckRoom(two);
  };
  ASSERT_TRUE(fixture.log->ReleaseBelow(2).ok());  // It becomes a spare.
  EXPECT_EQ(room().code(), StatusCode::kNoSpace);
  machine.disk->ClearFaults();
  EXPECT_TRUE(room().ok()) << room().ToString();
  fixture.log.reset();
}

TEST_F(LogTest, AFullDiskIsNoSpace) {
  io::SimDiskOptions disk_options;
  disk_options.capacity_bytes = 5 * (256 << 10);
  io::SimWorld machine = io::MakeSimWorld(3, disk_options);
  LogFixture fixture(machine.world());
  fixture.OpenLog();
  Status full;
  while (full.ok()) {
    const auto sequence = fixture.TryAppend(Payload(1, 20'000));
    if (sequence.ok()) {
      full = fixture.log->Wait(*sequence, true, io::kNoDeadline);
    } else if (sequence.status().code() == StatusCode::kBusy) {
      full = fixture.log->WaitForRoom(io::kNoDeadline);
    } else {
      full = sequence.status();
    }
  }
  EXPECT_EQ(full.code(), StatusCode::kNoSpace) << full.ToString();
  EXPECT_TRUE(fixture.log->poisoned().ok());
  const auto files = machine.disk->Files();
  EXPECT_TRUE(std::none_of(files.begin(), files.end(),
                           [](const std::string& path) { return path.ends_with(".tmp"); }));
  fixture.log.reset();
}

TEST_F(LogTest, ANewLogWithoutSpaceFailsToOpen) {
  Grant grant(0);
  fixture_.options.grant = &grant;
  EXPECT_EQ(fixture_.TryOpenLog().code(), StatusCode::kNoSpace);
  EXPECT_EQ(grant.taken_, 0u);
}

// ---------------------------------------------------------------- segments

TEST_F(LogTest, ReleasedSegmentsBecomeSparesUpToTheLimit) {
  Grant grant(UINT64_MAX);
  fixture_.options.grant = &grant;
  fixture_.options.spare_segments_max = 4;
  fixture_.OpenLog();
  for (int i = 0; i < 120; ++i) ASSERT_TRUE(Durable(Append(20'000)).ok());
  const std::vector<SegmentInfo> segments = log().Segments();
  ASSERT_GE(segments.size(), 8u);
  for (size_t i = 1; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].number, segments[i - 1].number + 1);
    EXPECT_EQ(segments[i].first_sequence, segments[i - 1].last_sequence + 1);
  }
  ASSERT_TRUE(log().ReleaseBelow(segments.back().number).ok());
  RunFor(100 * kMs);
  EXPECT_EQ(log().Segments().size(), 1u);
  EXPECT_EQ(log().counters().segments_spare, 5u);  // Four and the prepared one.
  EXPECT_EQ(grant.taken_, log().counters().segment_bytes_total);
  EXPECT_EQ(grant.taken_, 6 * fixture_.options.segment_bytes);
  fixture_.log.reset();  // Before its grant.
}

TEST_F(LogTest, ALogStartAlwaysHoldsSomethingDurable) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(log().Wait(Append(20'000), false, io::kNoDeadline).ok());
  const std::vector<SegmentInfo> segments = log().Segments();
  ASSERT_TRUE(log().ReleaseBelow(segments.back().number + 5).ok());
  const SegmentInfo first = log().Segments().front();
  EXPECT_LE(first.first_sequence, log().durable_sequence());
}

TEST_F(LogTest, UnfinishedAndForeignFilesAreHandled) {
  const auto touch = [&](const std::string& path) {
    ASSERT_TRUE(fixture_.world.files->Open(path, {.write = true, .create = true}).ok());
  };
  touch("log/spare-0000000000000009.log.tmp");
  touch("log/spare-0000000000000001.log");  // No length: not usable.
  touch("log/notes.txt");
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  const auto files = machine_.disk->Files();
  const auto has = [&](const std::string& path) {
    return std::find(files.begin(), files.end(), path) != files.end();
  };
  EXPECT_FALSE(has("log/spare-0000000000000009.log.tmp"));
  EXPECT_FALSE(has("log/spare-0000000000000001.log"));
  EXPECT_TRUE(has("log/notes.txt"));
}

TEST_F(LogTest, ADifferentSegmentSizeTakesOverFromTheNextSegmentOn) {
  fixture_.OpenLog();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Durable(Append(20'000)).ok());
  fixture_.log.reset();
  fixture_.options.segment_bytes = 512 << 10;
  fixture_.Reopen();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(Durable(Append(20'000)).ok());
  fixture_.log.reset();
  ExpectRecovered(60);
}

}  // namespace
}  // namespace cairn::wal
