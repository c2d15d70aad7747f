// SPDX-License-Identifier: Apache-2.0
//
// Property: a segment that rests can be read until the log removes it, also after an opening.
// Until then its bytes are taken from the grant. The check of such a segment finds any damage of
// its file.
// Method: a log of small segments on a simulated disk, some of which are left to rest.
#include "wal/resting_segment.h"

#include <gtest/gtest.h>

#include "tests/support/status.h"
#include "tests/wal/log_test.h"
#include "wal/format.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

class RestingSegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fixture_.options.grant = &grant_;
    fixture_.OpenLog();
    for (uint64_t i = 0; i < 100; ++i) {
      const uint64_t sequence = fixture_.Append(Payload(i, 20'000));
      ASSERT_OK(log().Wait(sequence, /*durable=*/true, io::kNoDeadline));
    }
    const std::vector<SegmentInfo> segments = log().Segments();
    ASSERT_GE(segments.size(), 7u);
    resting_ = {{segments[1].number, segments[1].end_offset},
                {segments[3].number, segments[3].end_offset}};
    start_ = segments[5].number;
    ASSERT_OK(
        log().ReleaseBelow(start_, std::vector<uint64_t>{resting_[0].number, resting_[1].number}));
  }
  void TearDown() override { fixture_.log.reset(); }  // Before its grant.
  Log& log() { return *fixture_.log; }
  std::string PathOf(uint64_t segment) const { return SegmentPath("log", segment); }
  bool Exists(uint64_t segment) { return machine_.disk->Info(PathOf(segment)).ok(); }
  Status Check(const RestingSegment& segment, bool payload = true) {
    records_ = 0;
    return CheckRestingSegment(fixture_.world, "log", kTestStore, segment, payload,
                               [this](const RecordView&) {
                                 ++records_;
                                 return Status::Ok();
                               });
  }

  const io::SimWorld machine_ = io::MakeSimWorld(1);
  Grant grant_{UINT64_MAX};
  LogFixture fixture_{machine_.world()};
  std::vector<RestingSegment> resting_;
  uint64_t start_ = 0;
  uint64_t records_ = 0;
};

TEST_F(RestingSegmentTest, StaysUntilItIsRemoved) {
  EXPECT_EQ(2u, log().counters().segments_resting);
  EXPECT_EQ(start_, log().Segments().front().number);
  EXPECT_TRUE(log().OpenSegment(resting_[0].number).ok());
  EXPECT_FAILS(log().OpenSegment(start_ - 1), StatusCode::kNotFound, "not part of the log");
  machine_.scheduler->Sleep(100 * kMs);
  EXPECT_EQ(grant_.taken_, log().counters().segment_bytes_total);
  const uint64_t taken = grant_.taken_;
  ASSERT_OK(log().RemoveResting(resting_[0].number));
  EXPECT_FALSE(Exists(resting_[0].number));
  EXPECT_TRUE(Exists(resting_[1].number));
  EXPECT_EQ(taken - fixture_.options.segment_bytes, grant_.taken_);
  EXPECT_FAILS(log().OpenSegment(resting_[0].number), StatusCode::kNotFound, "not part of the log");
}

TEST_F(RestingSegmentTest, AnOpeningKeepsThoseThatAreNamedAndRemovesOthers) {
  ASSERT_OK(log().Close());
  fixture_.log.reset();
  grant_.taken_ = 0;
  grant_.promised_ = 0;
  RecoveryOptions recovery;
  recovery.directory = "log";
  recovery.store = kTestStore;
  recovery.first_segment = start_;
  const Recovered found = RecoverLog(fixture_.world, recovery);
  ASSERT_OK(found.status);
  fixture_.options.resting = {resting_[1]};
  fixture_.OpenLog(found.log);
  EXPECT_FALSE(Exists(resting_[0].number)) << "a crash came between the list and the removal";
  EXPECT_TRUE(Exists(resting_[1].number));
  EXPECT_OK(Check(resting_[1]));
  EXPECT_EQ(grant_.taken_, log().counters().segment_bytes_total);
}

TEST_F(RestingSegmentTest, AFileThatCannotBeRemovedGoesOnResting) {
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& operation) { return operation.op == io::SimOp::kRemove; },
       .error = kEio});
  EXPECT_FAILS(log().RemoveResting(resting_[0].number), StatusCode::kIoError);
  EXPECT_EQ(2u, log().counters().segments_resting);
  machine_.disk->ClearFaults();
  EXPECT_OK(log().RemoveResting(resting_[0].number));
  EXPECT_EQ(1u, log().counters().segments_resting);
}

TEST_F(RestingSegmentTest, WhateverIsWrongIsFound) {
  const RestingSegment& segment = resting_[0];
  const std::string path = PathOf(segment.number);
  EXPECT_OK(Check(segment));
  const uint64_t all = records_;
  EXPECT_GT(all, 5u);
  ASSERT_OK_ASSIGN(const std::vector<std::byte> whole, machine_.disk->ReadRaw(path));
  for (uint64_t offset = 0; offset < segment.end_offset; offset += 1021) {
    ASSERT_OK(machine_.disk->FlipBit(path, offset, static_cast<unsigned>(offset % 8)));
    const Status found = Check(segment);
    if (!found.ok()) {
      EXPECT_EQ(StatusCode::kCorruption, found.code()) << offset;
      EXPECT_NE(std::string_view::npos, found.message().find(path)) << found.ToString();
    } else {  // Between records, or behind a group, only zeros are.
      EXPECT_EQ(std::byte{0}, whole[offset]) << offset;
    }
    ASSERT_OK(machine_.disk->WriteRaw(path, 0, whole));
  }
  EXPECT_FAILS(Check({segment.number, segment.end_offset - kBlock}), StatusCode::kCorruption,
               "ends here");
  EXPECT_FAILS(Check({segment.number, segment.end_offset + kBlock}), StatusCode::kCorruption, path);
  EXPECT_FAILS(Check({start_ - 1, segment.end_offset}), StatusCode::kCorruption);
  ASSERT_OK(machine_.disk->TruncateRaw(path, segment.end_offset / 2 / kBlock * kBlock));
  EXPECT_FAILS(Check(segment), StatusCode::kCorruption, "shorter");
  ASSERT_OK(machine_.disk->Remove(path));
  EXPECT_FAILS(Check(segment), StatusCode::kCorruption, "ENOENT");
}

TEST_F(RestingSegmentTest, AnErrorOfTheVisitorEndsTheWalk) {
  const Status refused(StatusCode::kCancelled, "enough");
  EXPECT_FAILS(CheckRestingSegment(fixture_.world, "log", kTestStore, resting_[0], false,
                                   [&](const RecordView&) { return refused; }),
               StatusCode::kCancelled, "enough");
}

}  // namespace
}  // namespace cairn::wal
