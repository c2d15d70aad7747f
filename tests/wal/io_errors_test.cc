// SPDX-License-Identifier: Apache-2.0
//
// Property: an error of the device is reported as what it is, by path. It is never taken for damage
// or for the end of the log, nothing is lost by it, and when it is over everything goes on: while a
// log is recovered, salvaged, opened, followed or copied.
// Method: a simulated disk of which one operation fails, looks and reads too; each in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "sim/world.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "tests/support/strike.h"
#include "wal/format.h"
#include "wal/log_copy.h"
#include "wal/segment_files.h"
#include "wal/segment_reader.h"

namespace cairn::wal {
namespace {

constexpr int kEio = 5;
// More than recovery holds in memory of it: it reads what it has read before.
constexpr uint64_t kLargeSegment = 3 * kReadBytes;

class IoErrorsTest : public ::testing::Test {
 protected:
  IoErrorsTest() : machine_(io::MakeSimWorld(3)), fixture_(machine_.world()) {
    // Without its name the directory would not survive a crash.
    EXPECT_OK(machine_.disk->SyncDirectory(""));
  }
  ~IoErrorsTest() override { fixture_.log.reset(); }

  void Append(size_t bytes, bool durable = true) {
    const uint64_t sequence = fixture_.Append(Payload(fixture_.appended.size() + 1, bytes));
    ASSERT_OK(fixture_.log->Wait(sequence, durable, io::kNoDeadline));
  }
  // The process dies without closing.
  void Kill() {
    std::shared_ptr<io::SimDisk> disk = Clone();
    fixture_.log.reset();
    machine_.disk = std::move(disk);
    fixture_.world.files = machine_.disk;
  }
  std::shared_ptr<io::SimDisk> Clone() {
    return machine_.disk->CrashClone(io::CrashChoice::KeepAll(), machine_.scheduler.get());
  }
  // After another epoch of the log has begun.
  void AppendInNextEpoch(size_t bytes) {
    const Recovered found = fixture_.Reopen();
    ASSERT_OK(found.status);
    fixture_.appended.resize(found.records.size());
    Append(bytes);
    Kill();
  }

  static std::string Path(uint64_t segment) { return SegmentPath("log", segment); }
  static RecoveryOptions Options(uint64_t first_segment = 1) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.first_segment = first_segment;
    return options;
  }
  static Recovered RecoverIn(io::World world, const RecoveryOptions& options) {
    return RecoverLog(world, options, /*read_payload=*/false);
  }
  std::vector<Location> Locations() {
    std::vector<Location> locations;
    io::World world{Clone(), machine_.scheduler};
    EXPECT_OK(Recover(world, Options(), [&](const RecordView& record) {
      locations.push_back(record.location);
      return Status::Ok();
    }));
    return locations;
  }
  void Flip(const Location& where, uint64_t offset) {
    ASSERT_OK(machine_.disk->FlipBit(Path(where.segment), offset, 3));
  }
  void FlipPayload(const Location& where) { Flip(where, where.offset + where.bytes - 100); }
  void FlipRecordHeader(const Location& where) { Flip(where, where.offset + 12); }
  // REQUIRES: the record is the first of its group.
  void FlipGroupHeader(const Location& where) {
    Flip(where, where.offset - sizeof(GroupHeader) + 40);
  }

  // On a copy of the disk for each of its operations, which fails: `attempt`, and when that is
  // over and the disk well again, `check` of what it gave. The number of failures.
  template <typename Attempt, typename Check>
  uint64_t FailEach(const Attempt& attempt, const Check& check) {
    for (uint64_t n = 0;; ++n) {
      const std::shared_ptr<io::SimDisk> disk = Clone();
      const io::World world{disk, machine_.scheduler};
      const testing::Strike strike(*disk, n);
      const Status status = attempt(world);
      disk->ClearFaults();
      if (!strike.met()) return n;
      failed_ = strike.what();
      SCOPED_TRACE("failed: " + failed_);
      check(world, status);
      if (::testing::Test::HasFailure()) return n;
    }
  }

  // Whatever fails during the recovery of the disk is reported, and a later recovery finds what it
  // finds without the failure. So does one whose records are refused. Gives what that is.
  Recovered RecoverWithErrors(const RecoveryOptions& options) {
    Recovered whole = RecoverIn({Clone(), machine_.scheduler}, options);
    const uint64_t failures =
        FailEach([&](const io::World& world) { return RecoverIn(world, options).status; },
                 [&](const io::World& world, const Status& status) {
                   EXPECT_FAILS(status, StatusCode::kIoError, "log");
                   const Recovered again = RecoverIn(world, options);
                   EXPECT_EQ(again.status.ToString(), whole.status.ToString());
                   EXPECT_EQ(again.records, whole.records);
                   EXPECT_TRUE(SameState(again.log, whole.log));
                 });
    EXPECT_GE(failures, 4u) << "a list of the directory, a file, its length and its header";
    for (size_t n = 1; n <= whole.records.size(); ++n) {
      io::World world{Clone(), machine_.scheduler};
      size_t calls = 0;
      const auto refused = Recover(world, options, [&](const RecordView&) {
        return ++calls == n ? Status(StatusCode::kOutOfMemory, "no more") : Status::Ok();
      });
      EXPECT_FAILS(refused, StatusCode::kOutOfMemory, "no more") << n;
      EXPECT_EQ(calls, n);
    }
    return whole;
  }
  // The part of a record that is in its header.
  void ExpectRecords(const Recovered& found, size_t count, size_t skipped = 0) {
    ASSERT_OK(found.status);
    ASSERT_EQ(found.records.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(found.records[i].sequence, i + skipped + 1);
      EXPECT_EQ(found.records[i].fields, fixture_.appended[i + skipped].fields) << i;
    }
  }

  io::SimWorld machine_;
  LogFixture fixture_;
  std::string failed_;  // The operation of FailEach.
};

// ---------------------------------------------------------------- recovery

TEST_F(IoErrorsTest, SeveralSegmentsAndATornTail) {
  fixture_.OpenLog();
  for (int i = 0; i < 45; ++i) Append(12'000);
  Append(9000, /*durable=*/false);
  Kill();
  FlipPayload(Locations().back());
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 45);
  EXPECT_TRUE(found.log.torn_tail);
  EXPECT_GE(found.log.segments.size(), 3u);
}

TEST_F(IoErrorsTest, DamagedPayloadsThatWereSynced) {
  fixture_.options.segment_bytes = kLargeSegment;
  fixture_.OpenLog();
  for (int i = 0; i < 4; ++i) Append(3000);
  Kill();
  FlipPayload(Locations()[1]);
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 4);
  EXPECT_FALSE(found.log.torn_tail);
}

TEST_F(IoErrorsTest, ATornTailInALargeSegment) {
  fixture_.options.segment_bytes = kLargeSegment;
  fixture_.OpenLog();
  Append(3000);
  Append(3000);
  Append(3000, /*durable=*/false);
  Append(3000, /*durable=*/false);
  Kill();
  const std::vector<Location> locations = Locations();
  ASSERT_EQ(locations.size(), 4u);
  FlipGroupHeader(locations[2]);
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 2);
  EXPECT_TRUE(found.log.torn_tail);
}

// Nothing but the first write of a log can be lost without a trace.
TEST_F(IoErrorsTest, AFirstGroupThatWasNeverWhole) {
  fixture_.OpenLog();
  Append(12'000, /*durable=*/false);
  Kill();
  FlipRecordHeader(Locations()[0]);
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 0);
  EXPECT_TRUE(found.log.segments.empty());
  EXPECT_EQ(found.log.next_epoch, 2u);
}

// The second segment has a torn group alone, behind which the third was begun. The torn bytes went
// on to rot.
TEST_F(IoErrorsTest, AnEmptySegmentInTheMiddle) {
  fixture_.OpenLog();
  Append(200'000);
  Append(100'000, /*durable=*/false);
  Kill();
  FlipPayload(Locations()[1]);
  AppendInNextEpoch(100);
  ASSERT_OK(machine_.disk->FlipBit(Path(2), kFirstGroupOffset + 40, 1));
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 2);
  EXPECT_EQ(found.log.segments.size(), 3u);
  // The same where the one before it was given back.
  ExpectRecords(RecoverWithErrors(Options(2)), 1, /*skipped=*/1);
}

TEST_F(IoErrorsTest, ALogThatWasClosed) {
  fixture_.options.segment_bytes = kLargeSegment;
  fixture_.OpenLog();
  Append(3000);
  Append(3000);
  ASSERT_OK(fixture_.log->Close());
  fixture_.log.reset();
  ExpectRecords(RecoverWithErrors(Options()), 2);
  // Whether a footer says that something is missing is looked at then.
  ASSERT_OK(machine_.disk->Remove(Path(2)));
  ExpectRecords(RecoverWithErrors(Options()), 2);
}

// A segment that was never synced may have lost its header, whatever else of it survives.
TEST_F(IoErrorsTest, ALastSegmentWithoutAHeader) {
  fixture_.OpenLog();
  for (int i = 0; i < 15; ++i) Append(12'000);
  Append(100'000, /*durable=*/false);
  Kill();
  ASSERT_EQ(Locations().back().segment, 2u);
  ASSERT_OK(machine_.disk->FlipBit(Path(2), 50, 1));
  ExpectRecords(RecoverWithErrors(Options()), 15);
}

// Header and first group are one write, of which either half may be lost.
TEST_F(IoErrorsTest, ALastSegmentWithoutAFirstGroup) {
  fixture_.options.segment_bytes = kLargeSegment;
  fixture_.OpenLog();
  Append(3000);
  Kill();
  AppendInNextEpoch(3000);
  FlipGroupHeader(Locations()[1]);
  const Recovered found = RecoverWithErrors(Options());
  ExpectRecords(found, 1);
  EXPECT_TRUE(found.log.torn_tail);
}

TEST_F(IoErrorsTest, LogsThatAreDamaged) {
  fixture_.OpenLog();
  Append(100);
  ASSERT_OK(fixture_.log->Close());
  fixture_.log.reset();
  AppendInNextEpoch(100);
  AppendInNextEpoch(100);
  const Status* status = nullptr;
  Recovered found;
  const auto recover = [&] {
    found = RecoverWithErrors(Options());
    status = &found.status;
  };
  ASSERT_OK(machine_.disk->FlipBit(Path(2), 60, 0));
  recover();
  EXPECT_FAILS(*status, StatusCode::kCorruption, Path(2) + ": offset 0");
  ASSERT_OK(machine_.disk->FlipBit(Path(2), 60, 0));
  ASSERT_OK(machine_.disk->Rename(Path(2), "aside"));
  recover();
  EXPECT_FAILS(*status, StatusCode::kCorruption, Path(2) + ": offset 0: the file is missing");
  ASSERT_OK(machine_.disk->Rename(Path(1), Path(2)));
  recover();
  EXPECT_FAILS(*status, StatusCode::kCorruption, Path(1) + ": offset 0: the file is missing");
}

TEST_F(IoErrorsTest, AFollower) {
  fixture_.OpenLog();
  for (int i = 0; i < 45; ++i) Append(12'000);
  Kill();
  RecoveryOptions options = Options();
  options.following = true;
  options.read_only = true;
  options.stop_after = 0;
  const Recovered found = RecoverWithErrors(options);
  ExpectRecords(found, 44);  // Nothing says yet that the last one was synced.
  options.stop_after = 45;
  ExpectRecords(RecoverWithErrors(options), 45);
}

TEST_F(IoErrorsTest, AFollowerInALargeSegment) {
  fixture_.options.segment_bytes = kLargeSegment;
  fixture_.OpenLog();
  for (int i = 0; i < 15; ++i) Append(100'000);
  Kill();
  RecoveryOptions options = Options();
  options.following = true;
  options.read_only = true;
  options.stop_after = 1;
  ExpectRecords(RecoverWithErrors(options), 14);
}

// ---------------------------------------------------------------- salvage

TEST_F(IoErrorsTest, SalvageOfASegmentThatIsDamaged) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  const std::vector<Location> locations = Locations();
  FlipGroupHeader(locations[9]);
  // Without its footer.
  ASSERT_OK(machine_.disk->FlipBit(Path(1), fixture_.options.segment_bytes - 1, 0));
  RecoveryOptions options = Options();
  options.salvage = true;
  const Recovered found = RecoverWithErrors(options);
  ExpectRecords(found, 9);
  EXPECT_TRUE(found.log.repaired);
}

// ---------------------------------------------------------------- one segment file

TEST_F(IoErrorsTest, ASegmentFileThatCannotBeRead) {
  fixture_.OpenLog();
  Append(100);
  Kill();
  const auto fail = [&](io::SimOp what) {
    machine_.disk->AddFault(
        {.when = [what](const io::SimOperation& op) { return op.op == what; }, .error = kEio});
  };
  const auto open = [&] { return SegmentReader::Open(fixture_.world, "log", 1, kTestStore); };
  for (const io::SimOp what : {io::SimOp::kOpen, io::SimOp::kStat}) {
    fail(what);
    EXPECT_FAILS(open(), StatusCode::kIoError, Path(1)) << io::SimOpName(what);
  }
  ASSERT_OK_ASSIGN(const auto reader, open());
  fail(io::SimOp::kRead);
  EXPECT_FAILS(reader->ReadHeader(), StatusCode::kIoError, Path(1));
  fail(io::SimOp::kRead);
  EXPECT_FAILS(reader->HeaderLooksUnwritten(), StatusCode::kIoError, Path(1));
  fail(io::SimOp::kRead);
  EXPECT_FAILS(reader->NumberInHeader(), StatusCode::kIoError, Path(1));
  ASSERT_OK_ASSIGN(const uint64_t number, reader->NumberInHeader());
  EXPECT_EQ(number, 1u);
}

// ---------------------------------------------------------------- opening, following, copying

// Beside a log of which the first segment was given back lies everything that a directory of a log
// can have: unfinished files, spares and segments of the right length and of others, and a next
// segment.
class OpenErrorsTest : public IoErrorsTest, public ::testing::WithParamInterface<bool> {
 protected:
  void MakeFile(const std::string& path, uint64_t bytes) {
    ASSERT_OK(MakeSegmentFile(*machine_.disk, path, bytes, bytes));
  }
};

TEST_P(OpenErrorsTest, WhatOpensAgainHasEverything) {
  fixture_.options.spare_segments_max = 2;  // So some are too many.
  fixture_.OpenLog();
  for (int i = 0; i < 45; ++i) Append(12'000);
  Kill();
  const RecoveryOptions options = Options(/*first_segment=*/2);
  const Recovered whole = RecoverIn(fixture_.world, options);
  ASSERT_OK(whole.status);
  ASSERT_GE(whole.log.segments.size(), 2u);
  const uint64_t next = whole.log.segments.back().number + 1;
  const uint64_t bytes = fixture_.options.segment_bytes;
  for (const std::string& name : machine_.disk->Files()) {
    if (name.starts_with("log/spare-") || name == Path(next)) {
      ASSERT_OK(machine_.disk->Remove(name));
    }
  }
  MakeFile(SparePath("log", 50), bytes);
  MakeFile(SparePath("log", 51), 2 * bytes);
  MakeFile(Path(next), GetParam() ? bytes : 2 * bytes);
  MakeFile(Path(next + 2), bytes);
  MakeFile(Path(next + 3), 2 * bytes);
  MakeFile(SparePath("log", 53) + ".tmp", bytes);
  ASSERT_OK(machine_.disk->SyncDirectory("log"));

  uint64_t told = 0;
  FailEach(
      [&](const io::World& world) {
        return Log::Open(world, fixture_.options, whole.log).status();
      },
      [&](const io::World& world, const Status& status) {
        // The log can be read without a next segment, and with a spare too many, which is the one
        // that was found last. Opening the next one is tried again.
        if (status.ok()) {
          EXPECT_TRUE(failed_.starts_with("rename log/spare-") ||
                      failed_.starts_with("remove " + SparePath("log", 54)) ||
                      failed_.starts_with("open " + Path(next)) ||
                      failed_.starts_with("allocate " + Path(next)))
              << failed_;
        } else {
          EXPECT_FAILS(status, StatusCode::kIoError, "log");
          ++told;
        }
        const auto& disk = static_cast<const io::SimDisk&>(*world.files);
        for (const io::CrashChoice& choice :
             {io::CrashChoice::LoseAll(), io::CrashChoice::Seeded(told)}) {
          const Recovered crashed = RecoverIn(io::CrashWorld(disk, choice).world(), options);
          ASSERT_OK(crashed.status);
          EXPECT_EQ(crashed.records, whole.records);
        }
        LogFixture again(world);
        again.options = fixture_.options;
        const Recovered found = RecoverIn(world, options);
        ASSERT_OK(found.status);
        EXPECT_EQ(found.records, whole.records);
        ASSERT_OK(again.TryOpenLog(found.log));
        ASSERT_OK(
            again.log->Wait(again.Append(Payload(1, 1000)), /*durable=*/true, io::kNoDeadline));
        again.log.reset();
        EXPECT_EQ(RecoverIn(world, options).records.size(), whole.records.size() + 1);
      });
  // Looks at the segments of the log and at the directory, and for most of the files beside it a
  // look and a change.
  EXPECT_GE(told, whole.log.segments.size() + 10);
}

INSTANTIATE_TEST_SUITE_P(, OpenErrorsTest, ::testing::Bool(), [](const auto& instance) {
  return std::string(instance.param ? "WithTheNextSegment" : "WithOneOfAnotherLength");
});

TEST_F(IoErrorsTest, ALogForReadingGoesOnFromWhatItHad) {
  fixture_.OpenLog();
  for (int i = 0; i < 45; ++i) Append(12'000);
  Kill();
  LogOptions reading = fixture_.options;
  reading.read_only = true;
  RecoveryOptions options = Options();
  options.read_only = true;
  options.stop_after = 5;
  const Recovered before = RecoverIn(fixture_.world, options);
  ExpectRecords(before, 5);
  options.stop_after = UINT64_MAX;
  const Recovered after = RecoverIn(fixture_.world, options);
  ExpectRecords(after, 45);
  ASSERT_GE(after.log.segments.size(), 3u);

  ASSERT_OK_ASSIGN(const auto log, Log::Open(fixture_.world, reading, before.log));
  EXPECT_EQ(log->Segments().size(), before.log.segments.size());
  EXPECT_EQ(log->last_reserved_sequence(), 5u);
  EXPECT_FAILS(log->OpenSegment(3), StatusCode::kNotFound);
  // A recovery has reported all that there is to know of the files.
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation&) { return true; }, .error = kEio, .persistent = true});
  EXPECT_OK(log->Follow(after.log, {}));
  machine_.disk->ClearFaults();
  EXPECT_EQ(log->Segments().size(), after.log.segments.size());
  EXPECT_EQ(log->last_reserved_sequence(), 45u);
  EXPECT_OK(log->OpenSegment(3));
}

class CopyErrorsTest : public IoErrorsTest {
 protected:
  // Copies so much of the log.
  void CopyWithErrors(const Recovered& whole) {
    LogCopy copy;
    copy.from = "log";
    copy.to = "copy";
    copy.store = kTestStore;
    copy.segments = whole.log.segments;
    copy.segment_bytes = fixture_.options.segment_bytes;
    uint64_t pieces = 0, refused = UINT64_MAX;
    copy.copied = [&](uint64_t bytes) {
      EXPECT_GT(bytes, 0u);
      return pieces++ == refused ? Status(StatusCode::kCancelled, "enough") : Status::Ok();
    };
    ASSERT_OK(machine_.disk->CreateDirectory("copy"));
    ASSERT_OK(machine_.disk->CreateDirectory("again"));
    ASSERT_OK(machine_.disk->SyncDirectory(""));
    const auto expect_whole = [&](const io::World& world) {
      LogCopy again = copy;
      again.to = "again";
      io::World mutable_world = world;
      ASSERT_OK(CopyLog(mutable_world, again));
      RecoveryOptions options = Options();
      options.directory = "again";
      const auto& disk = static_cast<const io::SimDisk&>(*world.files);
      const Recovered found =
          RecoverIn(io::CrashWorld(disk, io::CrashChoice::LoseAll()).world(), options);
      ASSERT_OK(found.status);
      EXPECT_EQ(found.records, whole.records);
    };
    const uint64_t failures =
        FailEach([&](io::World world) { return CopyLog(world, copy); },
                 [&](const io::World& world, const Status& status) {
                   EXPECT_FAILS(status, StatusCode::kIoError);
                   EXPECT_TRUE(status.message().find("log/") != std::string_view::npos ||
                               status.message().find("copy") != std::string_view::npos)
                       << status.ToString();
                   expect_whole(world);
                 });
    EXPECT_GE(failures, 4u);
    pieces = 0;
    expect_whole({Clone(), machine_.scheduler});
    const uint64_t all = pieces;
    EXPECT_GE(all, whole.log.segments.size());
    for (refused = 0; refused < all; ++refused) {
      io::World world{Clone(), machine_.scheduler};
      pieces = 0;
      EXPECT_FAILS(CopyLog(world, copy), StatusCode::kCancelled, "enough") << refused;
      EXPECT_EQ(pieces, refused + 1);
    }
  }
};

TEST_F(CopyErrorsTest, OfALogWithSegments) {
  fixture_.OpenLog();
  for (int i = 0; i < 40; ++i) Append(12'000);
  Kill();
  const Recovered whole = RecoverIn(fixture_.world, Options());
  ExpectRecords(whole, 40);
  CopyWithErrors(whole);
}

TEST_F(CopyErrorsTest, OfALogWithout) { CopyWithErrors(Recovered()); }

}  // namespace
}  // namespace cairn::wal
