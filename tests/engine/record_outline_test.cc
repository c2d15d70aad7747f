// SPDX-License-Identifier: Apache-2.0
//
// Outlines of records: what is kept, for how long, and what jobs are cut down to.
#include "engine/restore/plan/record_outline.h"

#include <gtest/gtest.h>

#include "base/codec/hash.h"
#include "base/core/aligned_buffer.h"
#include "tests/support/status.h"
#include "wal/format.h"

namespace cairn::engine {
namespace {

using testing::Fails;

constexpr StoreId kStore{};
constexpr uint32_t kLane = 1;

struct Record {
  wal::Location location;
  AlignedBuffer bytes;
};

// An append to each branch: two token ids in one strip, and 100 bytes in another.
Record Batch(uint32_t offset, size_t appends, bool in_order = true) {
  FieldWriter fields;
  std::vector<wal::Strip> strips;
  for (size_t i = 0; i < appends; ++i) {
    const auto strip = static_cast<uint32_t>(in_order ? 2 * i : 2 * (appends - 1 - i));
    Op op;
    op.kind = OpKind::kAppend;
    op.branch = op.node = i + 1;
    op.lanes = {{kTokenLane, strip, 5, 2}, {kLane, strip + 1, 5, 2}};
    FieldWriter one;
    EncodeOp(op, &one);
    fields.Table(kOpFieldsField, one);
    strips.insert(strips.end(), {{1, 8}, {2, 100}});
  }
  const wal::RecordSpec spec{
      .kind = static_cast<uint16_t>(OpKind::kBatch), .fields = fields.bytes(), .strips = strips};
  const auto bytes = static_cast<uint32_t>(wal::RecordBytes(fields.bytes().size(), strips));
  Record record{{1, 1, offset, bytes},
                AlignedBuffer::TryAllocate(Allocator::Default(), bytes, wal::kRecordAlignment)};
  std::fill_n(record.bytes.data(), bytes, std::byte{0});
  wal::EncodeRecord(spec, 1, record.bytes.data());
  const std::vector<std::byte> zeros(100);
  std::vector<uint64_t> hashes;
  for (const wal::Strip& strip : strips)
    hashes.push_back(Hash(std::span(zeros).first(strip.bytes)));
  wal::SealRecord(record.location, kStore, hashes, record.bytes.data());
  return record;
}

RecordJob JobOf(const Record& record, uint32_t op, uint32_t lane = kLane) {
  return {record.location, record.location.bytes, {{lane, op, 5, 5, 7}}};
}

uint64_t BytesOf(const Record& record) {
  return (*RecordOutline::Make(record.bytes.span(), record.location, kStore))->memory_bytes();
}

bool IsKnown(RecordOutlines* outlines, const Record& record) {
  RecordJob job = JobOf(record, 0);
  outlines->Narrow({&job, 1});
  return job.outline != nullptr;
}

TEST(RecordOutlineTest, CutsAJobDownToItsStrips) {
  const Record record = Batch(4096, 3);
  RecordOutlines outlines(1 << 20);
  RecordJob jobs[] = {JobOf(record, 1), JobOf(record, 1, kTokenLane), JobOf(record, 1),
                      JobOf(record, 7)};
  jobs[2].pieces.push_back({kTokenLane, 2, 5, 5, 7});
  outlines.Narrow(jobs);
  EXPECT_EQ(0u, jobs[0].read_offset) << "it is not known yet";
  ASSERT_OK_ASSIGN(const auto outline, outlines.Of(jobs[0], record.bytes.span(), kStore));
  outlines.Narrow(jobs);
  EXPECT_EQ(outline->strip(3).offset, jobs[0].read_offset);
  EXPECT_EQ(100u, jobs[0].read_bytes);
  EXPECT_EQ(outline->strip(2).offset, jobs[1].read_offset);
  EXPECT_EQ(8u, jobs[1].read_bytes);
  EXPECT_EQ(outline->strip(3).offset, jobs[2].read_offset);
  EXPECT_EQ(outline->strip(4).offset + 8, jobs[2].read_end());
  EXPECT_EQ(record.location.bytes, jobs[3].read_bytes) << "no such op: the sink says so";
  EXPECT_OK(outline->VerifyStrip(3, record.bytes.span().subspan(jobs[0].read_offset, 100), kStore));
  std::vector<std::byte> other(100);
  other[99] = std::byte{1};
  EXPECT_TRUE(Fails(outline->VerifyStrip(3, other, kStore), StatusCode::kCorruption, "strip 3"));
}

TEST(RecordOutlineTest, KeepsThoseUsedLast) {
  std::vector<Record> records;
  for (uint32_t i = 0; i < 4; ++i) records.push_back(Batch(4096 * (i + 1), 3));
  RecordOutlines outlines(3 * BytesOf(records[0]));
  const auto use = [&](size_t i) {
    EXPECT_OK(outlines.Of(JobOf(records[i], 0), records[i].bytes.span(), kStore));
  };
  for (const size_t i : {0u, 1u, 2u, 0u, 3u}) use(i);
  EXPECT_TRUE(IsKnown(&outlines, records[0]));
  EXPECT_FALSE(IsKnown(&outlines, records[1]));
  EXPECT_TRUE(IsKnown(&outlines, records[2]));
  EXPECT_TRUE(IsKnown(&outlines, records[3]));
  EXPECT_EQ(3 * BytesOf(records[0]), outlines.bytes());
  outlines.Clear();
  EXPECT_EQ(0u, outlines.bytes());
  EXPECT_FALSE(IsKnown(&outlines, records[0]));
}

TEST(RecordOutlineTest, KeepsNothingThatIsAloneOrTooLargeOrOutOfOrder) {
  RecordOutlines outlines(4 * BytesOf(Batch(4096, 2)));
  for (const Record& record : {Batch(4096, 1), Batch(4096, 1000), Batch(4096, 2, false)}) {
    ASSERT_OK_ASSIGN(const auto outline,
                     outlines.Of(JobOf(record, 0), record.bytes.span(), kStore));
    EXPECT_NE(nullptr, outline->Find(0, kLane, 5));
    EXPECT_EQ(0u, outlines.bytes());
  }
}

}  // namespace
}  // namespace cairn::engine
