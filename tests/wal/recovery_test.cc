// SPDX-License-Identifier: Apache-2.0
//
// Property: recovery takes every log apart as wal/FORMAT.md says. Synced records are found or their
// damage is named with file and offset; others may go; nothing wrong is ever delivered.
// Method: logs on a simulated disk, damaged on the medium: bits, sectors, lengths, whole files.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/core/aligned_buffer.h"
#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "wal/format.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {
namespace {

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() : machine_(io::MakeSimWorld(1)), fixture_(machine_.world()) {}

  void Append(size_t bytes, bool durable = true) {
    const uint64_t sequence = fixture_.Append(Payload(fixture_.appended.size() + 1, bytes));
    ASSERT_TRUE(fixture_.log->Wait(sequence, durable, io::kNoDeadline).ok());
  }
  // The process dies without closing; its threads are stopped on the side.
  void Kill() {
    auto disk = machine_.disk->CrashClone(io::CrashChoice::KeepAll(), machine_.scheduler.get());
    Kill(std::move(disk));
  }
  void Kill(std::shared_ptr<io::SimDisk> disk) {
    fixture_.log.reset();
    machine_.disk = std::move(disk);
    fixture_.world.files = machine_.disk;
  }
  Recovered RecoverFrom(uint64_t first_segment, bool salvage = false) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.first_segment = first_segment;
    options.salvage = salvage;
    return RecoverLog(fixture_.world, options);
  }
  Recovered RecoverAfterPowerLoss() {
    io::World world = io::CrashWorld(*machine_.disk, io::CrashChoice::LoseAll()).world();
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    return RecoverLog(world, options);
  }
  std::string Path(uint64_t segment) { return SegmentPath("log", segment); }
  uint32_t OffsetOf(size_t record_index) { return locations_.at(record_index).offset; }
  void Locate() {
    locations_.clear();
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    const auto found = Recover(fixture_.world, options, [&](const RecordView& record) {
      locations_.push_back(record.location);
      return Status::Ok();
    });
    ASSERT_TRUE(found.ok()) << found.status().ToString();
  }
  void Flip(const Location& where, uint64_t offset) {
    ASSERT_TRUE(machine_.disk->FlipBit(Path(where.segment), offset, 3).ok());
  }
  void ExpectCorruption(const Recovered& found, const std::string& what) {
    EXPECT_EQ(found.status.code(), StatusCode::kCorruption) << found.status.ToString();
    EXPECT_NE(found.status.ToString().find(what), std::string::npos) << found.status.ToString();
  }
  void ExpectPrefix(const Recovered& found, size_t count) {
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    ASSERT_EQ(found.records.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(found.records[i], fixture_.appended[i]) << i;
  }

  io::SimWorld machine_;
  LogFixture fixture_;
  std::vector<Location> locations_;
};

TEST_F(RecoveryTest, EmptyDirectoryAndUnusedLog) {
  ExpectPrefix(fixture_.RecoverAll(), 0);
  fixture_.OpenLog();
  Kill();
  const Recovered found = fixture_.RecoverAll();
  ExpectPrefix(found, 0);
  EXPECT_EQ(found.log.next_epoch, 1u);
  EXPECT_TRUE(found.log.segments.empty());
}

TEST_F(RecoveryTest, CleanCloseIsNotTorn) {
  fixture_.OpenLog();
  for (int i = 0; i < 5; ++i) Append(1000);
  ASSERT_TRUE(fixture_.log->Close().ok());
  fixture_.log.reset();
  const Recovered found = fixture_.RecoverAll();
  ExpectPrefix(found, 5);
  EXPECT_FALSE(found.log.torn_tail);
  EXPECT_EQ(found.log.segments.size(), 1u);
  EXPECT_EQ(found.log.segments[0].last_sequence, 5u);
}

TEST_F(RecoveryTest, SequencesGoOnOverManyEpochs) {
  fixture_.OpenLog();
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    for (int i = 0; i < 3; ++i) Append(3000);
    Kill();
    const Recovered found = fixture_.Reopen();
    ExpectPrefix(found, 3 * epoch);
    EXPECT_EQ(found.log.next_epoch, epoch + 1);
    EXPECT_EQ(found.log.segments.size(), epoch);
  }
}

TEST_F(RecoveryTest, FooterAndWalkGiveTheSame) {
  fixture_.OpenLog();
  for (int i = 0; i < 60; ++i) Append(12'000 + 100 * static_cast<size_t>(i));
  Kill();
  const Recovered by_footer = fixture_.RecoverAll();
  ExpectPrefix(by_footer, 60);
  ASSERT_GE(by_footer.log.segments.size(), 3u);
  uint64_t footers = 0;
  for (const SegmentInfo& segment : by_footer.log.segments) {
    const auto bytes = machine_.disk->ReadRaw(Path(segment.number));
    const auto tail = std::span(*bytes).last(sizeof(FooterTrailer));
    if (!ParseFooterTrailer(tail, segment.number, segment.epoch, bytes->size(), kTestStore))
      continue;
    ++footers;
    ASSERT_TRUE(machine_.disk->FlipBit(Path(segment.number), bytes->size() - 30, 0).ok());
  }
  EXPECT_EQ(footers, by_footer.log.segments.size() - 1);  // All but the last.
  const Recovered by_walk = fixture_.RecoverAll();
  ExpectPrefix(by_walk, 60);
  EXPECT_TRUE(SameState(by_footer.log, by_walk.log));
}

TEST_F(RecoveryTest, EveryFlippedBitOfAFooterIsHarmless) {
  fixture_.OpenLog();
  for (int i = 0; i < 30; ++i) Append(12'000);
  Kill();
  const auto bytes = machine_.disk->ReadRaw(Path(1));
  const auto trailer =
      ParseFooterTrailer(std::span(*bytes).last(64), 1, 1, bytes->size(), kTestStore);
  ASSERT_TRUE(trailer);
  const auto check = [&](uint64_t offset, unsigned bit) {
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), offset, bit).ok());
    ExpectPrefix(fixture_.RecoverAll(), 30);
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), offset, bit).ok());
  };
  for (uint64_t i = 0; i < 64; ++i) check(bytes->size() - 64 + i, i % 8);
  for (uint64_t i = 0; i < trailer->entries_bytes; ++i) check(trailer->footer_offset + i, i % 8);
}

// The writer sealed it like this: the checksum is right.
TEST_F(RecoveryTest, AFooterWithAnEntryBeyondItsEndIsNotUsed) {
  fixture_.OpenLog();
  for (int i = 0; i < 30; ++i) Append(12'000);
  Kill();
  const auto whole = machine_.disk->ReadRaw(Path(1));
  const auto trailer =
      ParseFooterTrailer(std::span(*whole).last(64), 1, 1, whole->size(), kTestStore);
  ASSERT_TRUE(trailer);
  for (const uint32_t header_bytes : {uint32_t{1} << 16, uint32_t{1} << 31, UINT32_MAX - 7}) {
    auto bytes = *whole;
    FooterTrailer changed = *trailer;
    const auto entries = std::span(bytes).subspan(changed.footer_offset, changed.entries_bytes);
    std::memcpy(entries.data() + sizeof(FooterGroup) + offsetof(FooterRecord, header_bytes),
                &header_bytes, sizeof(header_bytes));
    changed.entries_hash = Hash(entries);
    EncodeFooterTrailer(changed, bytes.size(), kTestStore, bytes.data() + bytes.size() - 64);
    ASSERT_TRUE(machine_.disk->WriteRaw(Path(1), 0, bytes).ok());
    ExpectPrefix(fixture_.RecoverAll(), 30);
  }
}

TEST_F(RecoveryTest, TornTailIsDroppedAndReported) {
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(5000);
  Append(9000, /*durable=*/false);
  Kill();
  Locate();
  Flip(locations_[4], OffsetOf(4) + 5000);  // Payload of the last group, which was never synced.
  const Recovered found = fixture_.RecoverAll();
  ExpectPrefix(found, 4);
  EXPECT_TRUE(found.log.torn_tail);
  EXPECT_NE(found.log.torn_detail.find("strip 0 of record 5"), std::string::npos)
      << found.log.torn_detail;
  // Continuing from here makes the dropped group void for ever.
  fixture_.appended.resize(4);
  fixture_.OpenLog(found.log);
  Append(100);
  Kill();
  ExpectPrefix(fixture_.RecoverAll(), 5);
}

// Its only group was dropped as torn, and the one before it has been given back: what the segment
// after it says of the group before is known from its own header.
TEST_F(RecoveryTest, ALogMayBeginWithAnEmptySegment) {
  fixture_.OpenLog();
  Append(200'000);
  Append(100'000, /*durable=*/false);
  Kill();
  Locate();
  ASSERT_EQ(2u, locations_[1].segment);
  Flip(locations_[1], OffsetOf(1) + 5000);
  Recovered found = fixture_.RecoverAll();
  ExpectPrefix(found, 1);
  fixture_.appended.resize(1);
  fixture_.OpenLog(found.log);
  Append(100);
  ASSERT_EQ(3u, fixture_.log->Segments().back().number);
  Kill();
  found = RecoverFrom(2);
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  ASSERT_EQ(1u, found.records.size());
  EXPECT_EQ(fixture_.appended[1], found.records[0]);
}

TEST_F(RecoveryTest, DamagedHeaderBelowWhatWasSyncedIsCorruption) {
  fixture_.OpenLog();
  for (int i = 0; i < 6; ++i) Append(5000);
  Kill();
  Locate();
  // Damages the group of record 2, then the record itself: later groups say that it was synced.
  Flip(locations_[1], OffsetOf(1) - 64 + 40);
  ExpectCorruption(fixture_.RecoverAll(),
                   "0000000000000001.log: offset " + std::to_string(OffsetOf(1) - 64));
  Flip(locations_[1], OffsetOf(1) - 64 + 40);
  Flip(locations_[1], OffsetOf(1) + 12);
  ExpectCorruption(fixture_.RecoverAll(), "offset " + std::to_string(OffsetOf(1)));
}

TEST_F(RecoveryTest, DamagedPayloadUnderAGoodHeaderCostsOnlyItself) {
  fixture_.OpenLog();
  for (int i = 0; i < 6; ++i) Append(5000);
  Kill();
  Locate();
  Flip(locations_[1], OffsetOf(1) + 1000);
  const Recovered found = fixture_.RecoverAll();
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  EXPECT_EQ(found.records.size(), 6u);
  EXPECT_EQ(found.damaged_strips, std::vector<uint64_t>{2});
  EXPECT_EQ(found.records[5], fixture_.appended[5]);
}

TEST_F(RecoveryTest, DamagedSegmentHeaderIsCorruption) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  for (uint64_t segment = 1; segment <= 2; ++segment) {
    ASSERT_TRUE(machine_.disk->FlipBit(Path(segment), 50, 1).ok());
    ExpectCorruption(fixture_.RecoverAll(), Path(segment));
    ASSERT_TRUE(machine_.disk->FlipBit(Path(segment), 50, 1).ok());
    // The whole block lost, as a failed sector reads on some devices.
    const auto bytes = machine_.disk->ReadRaw(Path(segment));
    const std::vector<std::byte> zeros(kBlock);
    ASSERT_TRUE(machine_.disk->WriteRaw(Path(segment), 0, zeros).ok());
    ExpectCorruption(fixture_.RecoverAll(), Path(segment));
    ASSERT_TRUE(machine_.disk->WriteRaw(Path(segment), 0, std::span(*bytes).first(kBlock)).ok());
  }
  ExpectPrefix(fixture_.RecoverAll(), 40);
}

TEST_F(RecoveryTest, DamagedHeaderAfterACleanCloseIsStillFound) {
  fixture_.OpenLog();
  Append(100);
  ASSERT_TRUE(fixture_.log->Close().ok());
  fixture_.log.reset();
  fixture_.Reopen();
  for (int i = 0; i < 3; ++i) Append(100);
  Kill();
  ASSERT_TRUE(machine_.disk->FlipBit(Path(2), 60, 0).ok());
  ExpectCorruption(fixture_.RecoverAll(), "0000000000000002.log: offset 0");
}

TEST_F(RecoveryTest, MissingSegmentsAreNamed) {
  fixture_.OpenLog();
  for (int i = 0; i < 60; ++i) Append(12'000);
  Kill();
  const size_t live = fixture_.RecoverAll().log.segments.size();
  ASSERT_GE(live, 3u);
  const std::string aside = "aside";
  for (uint64_t segment = 1; segment <= live; ++segment) {
    ASSERT_TRUE(fixture_.world.files->Rename(Path(segment), aside).ok());
    ExpectCorruption(fixture_.RecoverAll(), Path(segment) + ": offset 0: the file is missing");
    ASSERT_TRUE(fixture_.world.files->Rename(aside, Path(segment)).ok());
  }
  // The last two files gone, the prepared one included: the footer still knows.
  ASSERT_TRUE(fixture_.world.files->Remove(Path(live + 1)).ok());
  ASSERT_TRUE(fixture_.world.files->Remove(Path(live)).ok());
  ExpectCorruption(fixture_.RecoverAll(), Path(live) + ": offset 0: the file is missing");
  ExpectCorruption(RecoverFrom(live + 3), "the first segment is missing");
}

TEST_F(RecoveryTest, SwappedSegmentsAreRefused) {
  fixture_.OpenLog();
  for (int i = 0; i < 60; ++i) Append(12'000);
  Kill();
  ASSERT_TRUE(fixture_.world.files->Rename(Path(1), "aside").ok());
  ASSERT_TRUE(fixture_.world.files->Rename(Path(2), Path(1)).ok());
  ASSERT_TRUE(fixture_.world.files->Rename("aside", Path(2)).ok());
  ExpectCorruption(fixture_.RecoverAll(), Path(1));
}

TEST_F(RecoveryTest, AnotherStoresLogIsRefused) {
  fixture_.OpenLog();
  for (int i = 0; i < 3; ++i) Append(100);
  Kill();
  fixture_.options.store.bytes[5] ^= 1;
  const Recovered found = fixture_.RecoverAll();
  EXPECT_EQ(found.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(found.status.message().find("another store"), std::string_view::npos);
}

TEST_F(RecoveryTest, CutFilesAreCorruption) {
  fixture_.OpenLog();
  for (int i = 0; i < 30; ++i) Append(12'000);
  Kill();
  const auto whole = *machine_.disk->ReadRaw(Path(1));
  for (uint64_t length = 0; length < whole.size(); length += length < 8192 ? 64 : 4093) {
    ASSERT_TRUE(machine_.disk->TruncateRaw(Path(1), length).ok());
    ExpectCorruption(fixture_.RecoverAll(), Path(1));
    ASSERT_TRUE(machine_.disk->TruncateRaw(Path(1), whole.size()).ok());
    ASSERT_TRUE(machine_.disk->WriteRaw(Path(1), 0, whole).ok());
  }
  ExpectPrefix(fixture_.RecoverAll(), 30);
}

// The property of every single bit: the result is the truth, a prefix that ends at the last group,
// or an error; never something else.
TEST_F(RecoveryTest, NoFlippedBitGoesUnnoticed) {
  fixture_.OpenLog();
  for (int i = 0; i < 3; ++i) Append(300);
  Kill();
  Locate();
  const uint64_t end = AlignUp(OffsetOf(2) + locations_[2].bytes, kBlock);
  uint64_t corrupt = 0, torn = 0, damaged = 0, harmless = 0;
  const auto flip = [&](uint64_t offset, unsigned bit) {
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), offset, bit).ok());
    const Recovered found = fixture_.RecoverAll();
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), offset, bit).ok());
    if (!found.status.ok()) {
      ASSERT_EQ(found.status.code(), StatusCode::kCorruption);
      ++corrupt;
      return;
    }
    if (found.records.size() == 3 && found.damaged_strips.empty()) {
      ASSERT_EQ(found.records, fixture_.appended) << offset;
      ++harmless;
    } else if (found.damaged_strips.size() == 1) {
      ASSERT_LT(found.damaged_strips[0], 3u);
      ++damaged;
    } else {
      ASSERT_EQ(found.records.size(), 2u) << "only the last group may be called torn; " << offset;
      ++torn;
    }
  };
  for (uint64_t offset = 0; offset < end; ++offset) {
    // All bits where there is something, one where there are zeros.
    const uint64_t in_block = offset % kBlock;
    const bool dense = in_block < 700;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if (dense || bit == offset % 8) flip(offset, bit);
    }
  }
  EXPECT_GT(corrupt, 1000u);
  EXPECT_GT(torn, 1000u);
  EXPECT_GT(damaged, 1000u);
  EXPECT_GT(harmless, 1000u);  // The padding.
}

TEST_F(RecoveryTest, RecycledFilesWithStaleRecordsDoNotComeBack) {
  fixture_.options.spare_segments_min = 2;
  fixture_.OpenLog();
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 30; ++i) Append(12'000);
    ASSERT_TRUE(fixture_.log->ReleaseBelow(fixture_.log->Segments().back().number).ok());
  }
  const uint64_t made = fixture_.log->counters().segments_made;
  const SegmentInfo last = fixture_.log->Segments().back();
  EXPECT_GT(last.number, made);  // So files were used again.
  Kill();
  const Recovered found = RecoverFrom(last.number);
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  ASSERT_EQ(found.log.last_sequence, 180u);
  EXPECT_EQ(found.records.back(), fixture_.appended.back());
  EXPECT_EQ(found.log.segments.size(), 1u);
  // And once more, so that the stale bytes carry several epochs.
  fixture_.OpenLog(found.log);
  Append(100);
  Kill();
  EXPECT_EQ(RecoverFrom(last.number).log.last_sequence, 181u);
}

// Nothing but the first write of an epoch can be lost without a trace: then the epoch is used
// again, and what the first use left behind must not continue the second. All records have one
// size, so that old groups lie exactly where new ones would.
TEST_F(RecoveryTest, AnEpochThatIsUsedAgainFindsNothingOfItsFirstUse) {
  ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  fixture_.OpenLog();
  const auto append = [](LogFixture& fixture, uint64_t id) {
    const uint64_t sequence = fixture.Append(Payload(5 * id, 100));
    ASSERT_TRUE(fixture.log->Wait(sequence, false, io::kNoDeadline).ok());
  };
  std::vector<std::unique_ptr<io::SimDisk>> crashed;
  machine_.disk->set_on_operation([&](const io::SimOperation&) {
    const size_t unsynced = machine_.disk->unsynced_writes();
    for (uint64_t mask = 0; mask < (uint64_t{1} << std::min<size_t>(unsynced, 6)); ++mask) {
      crashed.push_back(
          machine_.disk->CrashClone(io::CrashChoice::Mask(mask), machine_.scheduler.get()));
    }
  });
  for (uint64_t i = 1; i <= 4; ++i) append(fixture_, i);
  machine_.disk->set_on_operation(nullptr);
  ASSERT_GE(crashed.size(), 8u);
  for (auto& clone : crashed) {
    std::shared_ptr<io::SimDisk> disk = std::move(clone);
    LogFixture second({disk, machine_.scheduler});
    const Recovered found = second.Reopen();
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    second.appended.assign(
        fixture_.appended.begin(),
        fixture_.appended.begin() + static_cast<ptrdiff_t>(found.log.last_sequence));
    append(second, 100);
    io::World world{disk->CrashClone(io::CrashChoice::KeepAll()), machine_.scheduler};
    second.log.reset();
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    const Recovered again = RecoverLog(world, options);
    ASSERT_TRUE(again.status.ok()) << again.status.ToString();
    EXPECT_EQ(again.records, second.appended);
  }
}

// The same for a first write that is torn twice: the header of the second use and the group of the
// first are each intact, and do not belong together.
TEST_F(RecoveryTest, AFirstGroupIsBoundToItsHeader) {
  ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  fixture_.OpenLog();
  const auto use = [&](uint64_t id) {
    auto disk = std::shared_ptr<io::SimDisk>(
        machine_.disk->CrashClone(io::CrashChoice::KeepAll(), machine_.scheduler.get()));
    LogFixture fixture({disk, machine_.scheduler});
    fixture.Reopen();
    const uint64_t sequence = fixture.Append(Payload(5 * id, 100));
    EXPECT_TRUE(fixture.log->Wait(sequence, true, io::kNoDeadline).ok());
    std::vector<std::byte> bytes = *disk->ReadRaw(Path(1));
    bytes.resize(2 * kBlock);
    return bytes;
  };
  const std::vector<std::byte> first = use(1);
  const std::vector<std::byte> second = use(2);
  Kill();
  ASSERT_TRUE(machine_.disk->WriteRaw(Path(1), 0, second).ok());
  EXPECT_EQ(fixture_.RecoverAll().records.size(), 1u);
  ASSERT_TRUE(machine_.disk->WriteRaw(Path(1), kBlock, std::span(first).subspan(kBlock)).ok());
  ExpectPrefix(fixture_.RecoverAll(), 0);
}

// A killed process leaves writes that are visible and not durable. The next segment vouches for
// them, so recovery must have made them durable.
TEST_F(RecoveryTest, WhatRecoveryReadIsDurableBeforeAnythingIsBuiltOnIt) {
  ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  fixture_.OpenLog();
  for (int i = 0; i < 5; ++i) Append(1000, /*durable=*/i == 0);
  const Recovered found = fixture_.RecoverAll();
  ExpectPrefix(found, 5);
  LogFixture second(fixture_.world);  // As another process; the first one does nothing any more.
  second.OpenLog(found.log);
  const uint64_t sequence = second.Append(Payload(6, 100));
  ASSERT_TRUE(second.log->Wait(sequence, true, io::kNoDeadline).ok());
  const Recovered again = RecoverAfterPowerLoss();
  ASSERT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.records.size(), 6u);
}

// So are names: of a log that was copied here by somebody who did not sync, say.
TEST_F(RecoveryTest, NamesThatRecoveryFoundAreDurable) {
  ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  fixture_.OpenLog();
  Append(1000);
  Kill();
  ASSERT_TRUE(machine_.disk->Rename(Path(1), "elsewhere").ok());
  ASSERT_TRUE(machine_.disk->SyncDirectory("").ok());
  ASSERT_TRUE(machine_.disk->Rename("elsewhere", Path(1)).ok());
  ExpectPrefix(RecoverFrom(1), 1);
  const Recovered again = RecoverAfterPowerLoss();
  ASSERT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.records.size(), 1u);
}

// Every check of its own holds for it, but it is not what the group was written with.
TEST_F(RecoveryTest, ARecordThatItsGroupDoesNotNameIsNotTaken) {
  TestRecord record;
  record.kind = 7;
  record.fields = BytesOf(1, 64);
  fixture_.OpenLog();
  Append(1000, /*durable=*/true);
  const uint64_t sequence = fixture_.Append(record);
  ASSERT_TRUE(fixture_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline).ok());
  Append(1000, /*durable=*/true);  // Says that it was synced.
  Kill();
  Locate();
  const std::vector<std::byte> other = BytesOf(2, 64);
  const RecordSpec spec{.kind = 7, .more = false, .unit = 0, .fields = other, .strips = {}};
  const AlignedBuffer bytes = AlignedBuffer::TryAllocate(
      Allocator::Default(), AlignUp(RecordBytes(other.size(), {}), kBlock), kBlock);
  EncodeRecord(spec, sequence, bytes.data());
  SealRecord(locations_[1], kTestStore, {}, bytes.data());
  ASSERT_TRUE(
      machine_.disk
          ->WriteRaw(Path(1), OffsetOf(1), bytes.span().first(RecordBytes(other.size(), {})))
          .ok());
  ExpectCorruption(RecoverFrom(1), "the group does not hold the records that its header names");
}

TEST_F(RecoveryTest, NoBitOfAFootersEntriesIsTakenForAnother) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) Append(12'000);  // Into the second segment.
  Kill();
  const auto trailer_of = [&](SegmentReader& reader) {
    const auto header = reader.ReadHeader();
    EXPECT_TRUE(header.ok()) << header.status().ToString();
    return **reader.ReadFooterTrailer(header->epoch);
  };
  auto whole = SegmentReader::Open(fixture_.world, "log", 1, kTestStore);
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const FooterTrailer trailer = trailer_of(**whole);
  ASSERT_TRUE((*whole)->ReadFooterEntries(trailer).ok());
  for (uint64_t i = 0; i < trailer.entries_bytes; ++i) {
    const uint64_t at = trailer.footer_offset + i;
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), at, i % 8).ok());
    auto reader = SegmentReader::Open(fixture_.world, "log", 1, kTestStore);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_EQ((*reader)->ReadFooterEntries(trailer).status().code(), StatusCode::kCorruption) << at;
    ASSERT_TRUE(machine_.disk->FlipBit(Path(1), at, i % 8).ok());
  }
}

TEST_F(RecoveryTest, SalvageKeepsWhatIsProvable) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  Locate();
  Flip(locations_[9], OffsetOf(9) + 20);
  // The footer still proves the record: only without it the walk meets the damage.
  const auto bytes = machine_.disk->ReadRaw(Path(1));
  ASSERT_TRUE(machine_.disk->FlipBit(Path(1), bytes->size() - 1, 0).ok());
  ExpectCorruption(RecoverFrom(1), Path(1).substr(4));
  const Recovered found = RecoverFrom(1, /*salvage=*/true);
  ExpectPrefix(found, 9);
  EXPECT_TRUE(found.log.repaired);
  EXPECT_NE(found.log.repaired_detail.find("offset " + std::to_string(OffsetOf(9))),
            std::string::npos);
  // The store goes on from there.
  fixture_.appended.resize(9);
  fixture_.OpenLog(found.log);
  Append(100);
  Append(100);
  Kill();
  ExpectPrefix(fixture_.RecoverAll(), 11);
}

TEST_F(RecoveryTest, StopAfterEndsAtThatGroup) {
  fixture_.OpenLog();
  for (int i = 0; i < 10; ++i) Append(100);
  Kill();
  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  options.stop_after = 6;
  const Recovered found = RecoverLog(fixture_.world, options);
  ExpectPrefix(found, 6);
  fixture_.appended.resize(6);
  fixture_.OpenLog(found.log);
  Append(200);
  Kill();
  ExpectPrefix(fixture_.RecoverAll(), 7);
}

TEST_F(RecoveryTest, ACallbackThatFailsEndsRecovery) {
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(100);
  Kill();
  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  int calls = 0;
  const auto found = Recover(fixture_.world, options, [&](const RecordView&) {
    return ++calls == 3 ? Status(StatusCode::kOutOfMemory, "no more") : Status::Ok();
  });
  EXPECT_EQ(found.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(calls, 3);
}

TEST_F(RecoveryTest, ReadErrorsAreReportedNotGuessed) {
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(100);
  Kill();
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kRead; }, .error = 5});
  EXPECT_EQ(fixture_.RecoverAll().status.code(), StatusCode::kIoError);
  ExpectPrefix(fixture_.RecoverAll(), 4);
}

TEST_F(RecoveryTest, ReadOnlySyncsNothing) {
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(100, false);
  Kill();
  const uint64_t before = machine_.disk->operations();
  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  options.read_only = true;
  ExpectPrefix(RecoverLog(fixture_.world, options), 4);
  EXPECT_EQ(machine_.disk->operations(), before);
  ExpectPrefix(fixture_.RecoverAll(), 4);
  EXPECT_GT(machine_.disk->operations(), before);
}

TEST_F(RecoveryTest, ANewerFormatIsRefusedByName) {
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(100);
  Kill();
  auto block = std::vector<std::byte>(kBlock);
  const auto bytes = machine_.disk->ReadRaw(Path(1));
  std::copy_n(bytes->begin(), kBlock, block.begin());
  const uint32_t version = kFormatVersion + 1;
  std::memcpy(block.data() + offsetof(SegmentHeader, format_version), &version, 4);
  const uint64_t hash = HashBehindHash(block.data(), kBlock, PlaceSeed(kTestStore, 1, 1, 0));
  std::memcpy(block.data(), &hash, 8);
  ASSERT_TRUE(machine_.disk->WriteRaw(Path(1), 0, block).ok());
  const Recovered found = fixture_.RecoverAll();
  EXPECT_EQ(found.status.code(), StatusCode::kUnsupportedFormat);
  EXPECT_NE(found.status.message().find("format version 2"), std::string_view::npos);
}

}  // namespace
}  // namespace cairn::wal
