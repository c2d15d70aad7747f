// SPDX-License-Identifier: Apache-2.0
//
// Property: bytes of a log that have their checksum and still cannot be right are refused by file
// and offset, or not used; so no writer's mistake is taken for data. A device that cannot be read
// is reported as that, and not as damage.
// Method: headers, groups and footers of logs on a simulated disk are changed and sealed again.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "sim/world.h"
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
  // Sealed again, entries and trailer.
  template <typename Change>
  void ChangeFooter(uint64_t segment, const Change& change) {
    std::vector<std::byte> bytes = Bytes(segment);
    std::optional<FooterTrailer> trailer = Trailer(segment);
    ASSERT_TRUE(trailer);
    const auto entries = std::span(bytes).subspan(trailer->footer_offset, trailer->entries_bytes);
    change(*trailer, entries);
    trailer->entries_hash = Hash(entries.first(trailer->entries_bytes));
    EncodeFooterTrailer(*trailer, bytes.size(), kTestStore,
                        bytes.data() + bytes.size() - sizeof(*trailer));
    Write(segment, 0, bytes);
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
  // A shorter one may have been closed, which the walk finds out.
  for (const uint64_t said : {uint64_t{512} << 10, uint64_t{1} << 20}) {
    ChangeHeader(1, [said](SegmentHeader& header) { header.segment_bytes = said; });
    const std::string what = "the file has 262144 bytes, its header says " + std::to_string(said);
    EXPECT_FAILS(Recover().status, StatusCode::kCorruption, Path(1) + ": offset 0: " + what);
  }
  ChangeHeader(1, [](SegmentHeader& header) { header.segment_bytes = 256 << 10; });
  ExpectPrefix(Recover(), 3);
  std::vector<std::byte> longer = Bytes(1);
  longer.resize(512 << 10);
  Write(1, 0, longer);
  const std::string what = "the file has 524288 bytes, its header says 262144";
  ASSERT_OK_ASSIGN(const auto reader, SegmentReader::Open(fixture_.world, "log", 1, kTestStore));
  EXPECT_FAILS(reader->ReadHeader(), StatusCode::kCorruption, Path(1) + ": offset 0: " + what);
  EXPECT_FAILS(Recover().status, StatusCode::kCorruption, Path(1) + ": offset 0: " + what);
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

// An unused footer differs from a used one at a damaged group: a used one proves it, a walk stops
// at it.
TEST_F(WrongContentsTest, FootersThatDoNotFitTheirSegment) {
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  ASSERT_OK(machine_.disk->FlipBit(Path(1), 4 * kBlock + 20, 3));
  ExpectPrefix(Recover(), 40);
  const std::vector<std::byte> whole = Bytes(1);

  using Entries = std::span<std::byte>;
  const auto change_group = [](Entries entries, const auto& change) {
    auto group = LoadAs<FooterGroup>(entries.data());
    change(group);
    std::memcpy(entries.data(), &group, sizeof(group));
  };
  const struct {
    const char* what;
    std::function<void(FooterTrailer&, Entries)> change;
  } kForged[] = {
      {"a group more than there is",
       [](FooterTrailer& trailer, Entries) { trailer.group_count += 1; }},
      {"a group less than there is",
       [](FooterTrailer& trailer, Entries) { trailer.group_count -= 1; }},
      {"cut in the middle of a group",
       [](FooterTrailer& trailer, Entries) { trailer.entries_bytes = sizeof(FooterGroup) - 8; }},
      {"cut behind a group, before its record",
       [](FooterTrailer& trailer, Entries) { trailer.entries_bytes = sizeof(FooterGroup); }},
      {"a group at another place",
       [&](FooterTrailer&, Entries entries) {
         change_group(entries, [](FooterGroup& group) { group.offset += kBlock; });
       }},
      {"a group of other sequences",
       [&](FooterTrailer&, Entries entries) {
         change_group(entries, [](FooterGroup& group) { group.header.first_sequence += 1; });
       }},
      {"a group of more records",
       [&](FooterTrailer&, Entries entries) {
         change_group(entries, [](FooterGroup& group) { group.header.record_count += 1; });
       }},
      {"a group of another hash, the last",
       [](FooterTrailer& trailer, Entries entries) {
         // All are read up to the last, which begins where the entries have so much left.
         size_t at = 0;
         for (uint32_t g = 1; g < trailer.group_count; ++g) {
           at += sizeof(FooterGroup);
           const auto record = LoadAs<FooterRecord>(entries.data() + at);
           at += sizeof(FooterRecord) + record.header_bytes;
         }
         auto group = LoadAs<FooterGroup>(entries.data() + at);
         group.header.hash ^= 1;
         std::memcpy(entries.data() + at, &group, sizeof(group));
       }},
      {"a record whose header has an odd length",
       [](FooterTrailer&, Entries entries) {
         auto record = LoadAs<FooterRecord>(entries.data() + sizeof(FooterGroup));
         record.header_bytes -= 4;
         std::memcpy(entries.data() + sizeof(FooterGroup), &record, sizeof(record));
       }},
      {"a record whose header is cut",
       [](FooterTrailer&, Entries entries) {
         auto record = LoadAs<FooterRecord>(entries.data() + sizeof(FooterGroup));
         record.header_bytes -= 8;
         std::memcpy(entries.data() + sizeof(FooterGroup), &record, sizeof(record));
       }},
  };
  for (const auto& forged : kForged) {
    SCOPED_TRACE(forged.what);
    ChangeFooter(1, forged.change);
    EXPECT_FAILS(Recover().status, StatusCode::kCorruption, Path(1) + ": offset 16384: no group");
    Write(1, 0, whole);
  }
  ExpectPrefix(Recover(), 40);
}

// A spare that once was the segment of the same number, in an epoch whose end was lost.
TEST_F(WrongContentsTest, ANextSegmentThatAnEarlierEpochLeftBehind) {
  Append(1000);
  Kill();
  fixture_.Reopen();
  Append(1000);
  Kill();
  std::vector<std::byte> old = Bytes(1);
  old.resize(2 * kBlock);
  Write(3, 0, old);
  ChangeHeader(3, [](SegmentHeader& header) { header.segment = 3; });
  ChangeGroup(3, kFirstGroupOffset, [](GroupHeader& group) { group.segment = 3; });
  const Recovered found = Recover();
  ExpectPrefix(found, 2);
  EXPECT_EQ(found.log.segments.size(), 2u);
  EXPECT_EQ(found.log.next_epoch, 3u);
  EXPECT_FALSE(found.log.torn_tail);
}

// Segments given back were durable, so the log began with something.
TEST_F(WrongContentsTest, AFirstSegmentThatIsDamagedIsNoNewLog) {
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  options.first_segment = 2;
  EXPECT_OK(RecoverLog(fixture_.world, options).status);
  const std::vector<std::byte> second = Bytes(2);
  Write(2, 0, std::vector<std::byte>(kBlock));
  EXPECT_FAILS(RecoverLog(fixture_.world, options).status, StatusCode::kCorruption,
               Path(2) + ": offset 0");
  Write(2, 0, second);
  ASSERT_OK(machine_.disk->FlipBit(Path(2), kFirstGroupOffset + 20, 3));
  EXPECT_FAILS(RecoverLog(fixture_.world, options).status, StatusCode::kCorruption,
               Path(2) + ": offset 4096: the first group is damaged");
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
  // The first group is read no further than its first block with the header.
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
