// SPDX-License-Identifier: Apache-2.0
//
// Property: bytes of a log that have their checksum and still cannot be right are refused by file
// and offset, or not used; so no writer's mistake is taken for data. A device that cannot be read
// is told as that, and not as damage.
// Method: headers, groups and footers of logs on a simulated disk are changed and sealed anew.
#include <gtest/gtest.h>

#include <cstring>

#include "base/io/sim_world.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "wal/format.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {
namespace {

constexpr int kEio = 5;

class WrongContentsTest : public ::testing::Test {
 protected:
  WrongContentsTest() : machine_(io::MakeSimWorld(1)), fixture_(machine_.world()) {
    fixture_.OpenLog();
  }

  void Append(size_t bytes) {
    const uint64_t sequence = fixture_.Append(Payload(fixture_.appended.size() + 1, bytes));
    ASSERT_OK(fixture_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline));
  }
  // The process dies without closing.
  void Kill() {
    auto disk = machine_.disk->CrashClone(io::CrashChoice::KeepAll(), machine_.scheduler.get());
    fixture_.log.reset();
    machine_.disk = std::move(disk);
    fixture_.world.files = machine_.disk;
  }
  static std::string Path(uint64_t segment) { return SegmentPath("log", segment); }
  std::vector<std::byte> Bytes(uint64_t segment) { return *machine_.disk->ReadRaw(Path(segment)); }
  void Write(uint64_t segment, uint64_t offset, std::span<const std::byte> bytes) {
    ASSERT_OK(machine_.disk->WriteRaw(Path(segment), offset, bytes));
  }

  template <typename Change>
  void ChangeHeader(uint64_t segment, const Change& change) {
    auto header = LoadAs<SegmentHeader>(Bytes(segment).data());
    change(header);
    std::vector<std::byte> block(kBlock);
    EncodeSegmentHeader(header, block.data());
    Write(segment, 0, block);
  }
  template <typename Change>
  void ChangeGroup(uint64_t segment, uint32_t offset, const Change& change) {
    auto group = LoadAs<GroupHeader>(Bytes(segment).data() + offset);
    ASSERT_EQ(group.magic, kGroupMagic) << offset;
    change(group);
    std::vector<std::byte> bytes(sizeof(group));
    EncodeGroupHeader(group, offset, kTestStore, bytes.data());
    Write(segment, offset, bytes);
  }
  std::optional<FooterTrailer> Trailer(uint64_t segment) {
    const std::vector<std::byte> bytes = Bytes(segment);
    return ParseFooterTrailer(std::span(bytes).last(sizeof(FooterTrailer)), segment, 1,
                              bytes.size(), kTestStore);
  }
  void FailRead(uint64_t segment, uint64_t offset) {
    machine_.disk->AddFault({.when =
                                 [path = Path(segment), offset](const io::SimOperation& op) {
                                   return op.op == io::SimOp::kRead && op.offset == offset &&
                                          op.path.ends_with(path);
                                 },
                             .error = kEio});
  }

  Recovered Recover(uint64_t stop_after = UINT64_MAX, bool following = false) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.stop_after = stop_after;
    options.following = following;
    options.read_only = following;
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

TEST_F(WrongContentsTest, AFileOfAnotherLengthThanItsHeaderSays) {
  for (int i = 0; i < 3; ++i) Append(1000);
  Kill();
  ExpectPrefix(Recover(), 3);
  for (const uint64_t said : {uint64_t{512} << 10, uint64_t{1} << 20}) {
    ChangeHeader(1, [said](SegmentHeader& header) { header.segment_bytes = said; });
    const std::string what = "the file has 262144 bytes, its header says " + std::to_string(said);
    ASSERT_OK_ASSIGN(const auto reader, SegmentReader::Open(fixture_.world, "log", 1, kTestStore));
    EXPECT_FAILS(reader->ReadHeader(), StatusCode::kCorruption, Path(1) + ": offset 0: " + what);
    EXPECT_FAILS(Recover().status, StatusCode::kCorruption, Path(1) + ": offset 0: " + what);
  }
}

TEST_F(WrongContentsTest, AGroupThatIsLongerThanItsRecords) {
  for (int i = 0; i < 3; ++i) Append(1000);
  Kill();
  ChangeGroup(1, 2 * kBlock, [](GroupHeader& group) { group.length += kRecordAlignment; });
  EXPECT_FAILS(
      Recover().status, StatusCode::kCorruption,
      Path(1) + ": offset 8192: the group does not hold the records that its header names");
}

TEST_F(WrongContentsTest, AGroupThatIsShorterThanItsRecords) {
  for (int i = 0; i < 3; ++i) Append(1000);
  Kill();
  ChangeGroup(1, 2 * kBlock, [](GroupHeader& group) { group.length -= kRecordAlignment; });
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               Path(1) + ": offset " + std::to_string(2 * kBlock + sizeof(GroupHeader)) +
                   ": record 2 does not fit into its group");
}

TEST_F(WrongContentsTest, AGroupOfOtherSequences) {
  for (int i = 0; i < 3; ++i) Append(1000);
  Kill();
  ChangeGroup(1, 2 * kBlock, [](GroupHeader& group) { group.first_sequence = 7; });
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               Path(1) + ": offset 8192: a group from sequence 7, expected 2");
}

TEST_F(WrongContentsTest, ASegmentThatFollowsAnother) {
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  const std::vector<std::byte> second = Bytes(2);
  ChangeHeader(2, [](SegmentHeader& header) { header.predecessor_epoch = 5; });
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               Path(2) + ": offset 0: continues segment 0000000000000001.log of epoch 5, found " +
                   Path(1) + " of epoch 1");
  ChangeHeader(2, [](SegmentHeader& header) {
    header.predecessor_epoch = 1;
    header.predecessor_segment = 9;
  });
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               "continues segment 0000000000000009.log of epoch 1");
  Write(2, 0, second);
  ExpectPrefix(Recover(), 40);
}

// The footer does not fit what follows either, so it is not used, and the walk finds the same.
TEST_F(WrongContentsTest, ASegmentThatEndsInAnotherGroupThanTheNextSays) {
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  const auto trailer = Trailer(1);
  ASSERT_TRUE(trailer);
  const auto last = std::to_string(trailer->last_sequence);
  ChangeHeader(2, [](SegmentHeader& header) { header.predecessor_last_hash ^= 1; });
  EXPECT_FAILS(
      Recover().status, StatusCode::kCorruption,
      "ends with sequence " + last + ", the next segment follows sequence " + last + " at offset ");
}

// The header of the segment behind is all that says so: in the first nothing follows.
TEST_F(WrongContentsTest, ADamagedGroupThatTheNextSegmentVouchesFor) {
  Append(1000);
  Kill();
  fixture_.Reopen();
  Append(1000);
  Kill();
  ASSERT_OK(machine_.disk->FlipBit(Path(1), kFirstGroupOffset + 20, 3));
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption,
               Path(2) + " says that everything up to 1 was synced");
}

TEST_F(WrongContentsTest, AReadErrorIsNoDamage) {
  // Headers that no block holds together with the trailer.
  for (int i = 0; i < 70; ++i) Append(1000);
  Kill();
  const auto trailer = Trailer(1);
  ASSERT_TRUE(trailer);
  ASSERT_LT(trailer->footer_offset + kBlock, Bytes(1).size());
  FailRead(1, trailer->footer_offset);
  EXPECT_FAILS(Recover().status, StatusCode::kIoError, Path(1));
  ExpectPrefix(Recover(), 70);
  // Of the first group no more is read with the header than its first block.
  FailRead(1, kFirstGroupOffset);
  EXPECT_OK(Recover().status);
  machine_.disk->ClearFaults();
}

TEST_F(WrongContentsTest, AReadErrorInTheFirstGroup) {
  Append(12'000);
  Append(100);
  Kill();
  FailRead(1, kFirstGroupOffset);
  EXPECT_FAILS(Recover().status, StatusCode::kIoError, Path(1));
  ExpectPrefix(Recover(), 2);
}

TEST_F(WrongContentsTest, StoppingInTheMiddleOfAGroupTakesNothingOfIt) {
  Append(100);
  for (uint64_t i = 2; i <= 4; ++i) fixture_.Append(Payload(i, 100));
  ASSERT_OK(fixture_.log->Wait(4, /*durable=*/true, io::kNoDeadline));
  Append(100);
  Kill();
  ASSERT_EQ(LoadAs<GroupHeader>(Bytes(1).data() + 2 * kBlock).record_count, 3u);
  ExpectPrefix(Recover(/*stop_after=*/3), 1);
  ExpectPrefix(Recover(/*stop_after=*/4), 4);
}

// A segment without a footer can be full to its last block.
TEST_F(WrongContentsTest, AFollowerReadsASegmentToItsLastBlock) {
  TestRecord large;
  large.kind = 7;
  large.fields = BytesOf(1, 20'000);  // More than a footer may repeat.
  ASSERT_OK(fixture_.log->Wait(fixture_.Append(large), /*durable=*/true, io::kNoDeadline));
  const uint64_t segment_bytes = fixture_.options.segment_bytes;
  while (fixture_.log->Segments().back().end_offset + kBlock <= segment_bytes) Append(100);
  ASSERT_EQ(fixture_.log->Segments().size(), 1u);
  const size_t count = fixture_.appended.size();
  Kill();
  ExpectPrefix(Recover(), count);
  // Nothing says yet that the last group was synced.
  ExpectPrefix(Recover(/*stop_after=*/0, /*following=*/true), count - 1);
}

TEST_F(WrongContentsTest, ADirectoryThatCannotBeListed) {
  ASSERT_OK(fixture_.world.files->Open("file", {.write = true, .create = true}));
  RecoveryOptions options;
  options.directory = "file";
  options.store = kTestStore;
  const Status status = RecoverLog(fixture_.world, options).status;
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::kNotFound) << status.ToString();
  EXPECT_NE(status.message().find("file"), std::string_view::npos) << status.ToString();
}

}  // namespace
}  // namespace cairn::wal
