// SPDX-License-Identifier: Apache-2.0
//
// Property: the log does what wal/log.h says when all is well, when the disk is full, when memory
// is short and when a write or a sync fails.
// Method: a simulated machine, with faults at chosen operations; the order of operations is read
// off the disk.
#include "wal/log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/core/aligned_buffer.h"
#include "base/io/sim_world.h"
#include "tests/support/log_fixture.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

constexpr int kEio = 5;
constexpr uint64_t kMs = 1'000'000;

class Observer final : public LogObserver {
 public:
  void OnProgress(uint64_t written, uint64_t durable) override {
    EXPECT_GE(written, written_);
    EXPECT_GE(durable, durable_);
    EXPECT_LE(durable, written);
    EXPECT_FALSE(inside_) << "calls overlap";
    inside_ = true;
    written_ = written;
    durable_ = durable;
    inside_ = false;
  }
  void OnPoison(const Status& cause, uint64_t acknowledged) override {
    ++poisons_;
    cause_ = cause;
    acknowledged_ = acknowledged;
  }
  void OnEvent(const std::string& line) override { events_.push_back(line); }
  uint64_t Count(std::string_view words) const {
    return static_cast<uint64_t>(std::ranges::count_if(
        events_, [&](const std::string& line) { return line.find(words) != std::string::npos; }));
  }

  uint64_t written_ = 0, durable_ = 0, acknowledged_ = 0;
  int poisons_ = 0;
  Status cause_;
  std::vector<std::string> events_;
  bool inside_ = false;
};

class Grant final : public SpaceGrant {
 public:
  explicit Grant(uint64_t limit) : limit_(limit) {}
  Status Take(uint64_t bytes, Purpose purpose) override {
    const uint64_t limit = purpose == Purpose::kData ? limit_ - reserve_ : limit_;
    if (taken_ + bytes > limit) return Status(StatusCode::kNoSpace, "max_bytes");
    taken_ += bytes;
    return Status::Ok();
  }
  void TakeAnyway(uint64_t bytes) override { taken_ += bytes; }
  void Return(uint64_t bytes) override {
    ASSERT_LE(bytes, taken_);
    taken_ -= bytes;
  }
  bool IsShort() const override { return taken_ > limit_ - reserve_; }
  uint64_t room(Purpose purpose) const override {
    const uint64_t limit = purpose == Purpose::kData ? limit_ - reserve_ : limit_;
    return limit - std::min(limit, taken_);
  }
  uint64_t limit_;
  uint64_t reserve_ = 0;
  uint64_t taken_ = 0;
};

class LogTest : public ::testing::Test {
 protected:
  LogTest() : machine_(io::MakeSimWorld(7)), fixture_(machine_.world()) {
    fixture_.options.observer = &observer_;
    // Without its name the directory would not survive a crash.
    EXPECT_TRUE(machine_.disk->SyncDirectory("").ok());
  }
  ~LogTest() override {
    machine_.disk->set_on_operation(nullptr);
    fixture_.log.reset();
  }

  Log& log() { return *fixture_.log; }
  uint64_t Append(size_t bytes, Log::Purpose purpose = Log::Purpose::kData) {
    return fixture_.Append(Payload(fixture_.appended.size() + 1, bytes), purpose);
  }
  Result<uint64_t> TryAppend(size_t bytes, Log::Purpose purpose = Log::Purpose::kData) {
    return fixture_.TryAppend(Payload(fixture_.appended.size() + 1, bytes), purpose);
  }
  Status Durable(uint64_t sequence) { return log().Wait(sequence, true, io::kNoDeadline); }
  void ExpectRecovered(size_t count, uint64_t first_segment = 1) {
    RecoveryOptions options;
    options.directory = "log";
    options.store = kTestStore;
    options.first_segment = first_segment;
    const Recovered found = RecoverLog(fixture_.world, options);
    ASSERT_TRUE(found.status.ok()) << found.status.ToString();
    EXPECT_EQ(found.log.last_sequence, count);
    ASSERT_LE(found.records.size(), fixture_.appended.size());
    const size_t skipped = count - found.records.size();
    EXPECT_TRUE(std::equal(found.records.begin(), found.records.end(),
                           fixture_.appended.begin() + static_cast<ptrdiff_t>(skipped)));
  }
  void RunFor(uint64_t ns) { machine_.scheduler->Sleep(ns); }

  io::SimWorld machine_;
  Observer observer_;
  LogFixture fixture_;
};

// ---------------------------------------------------------------- levels and order

TEST_F(LogTest, WaitTellsWrittenAndDurableApart) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());  // The first group of an epoch is always synced.
  const uint64_t syncs = log().counters().syncs;
  const uint64_t second = Append(100);
  ASSERT_TRUE(log().Wait(second, false, io::kNoDeadline).ok());
  EXPECT_EQ(log().written_sequence(), 2u);
  EXPECT_EQ(log().durable_sequence(), 1u);
  EXPECT_EQ(log().counters().syncs, syncs);
  // Nothing new to write: the sync comes alone.
  ASSERT_TRUE(Durable(second).ok());
  EXPECT_EQ(log().durable_sequence(), 2u);
  EXPECT_EQ(log().counters().syncs, syncs + 1);
  EXPECT_EQ(log().counters().groups, 2u);
  EXPECT_EQ(observer_.written_, 2u);
  EXPECT_EQ(observer_.durable_, 2u);
}

TEST_F(LogTest, OneSyncCoversEverythingBefore) {
  fixture_.OpenLog();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(log().Wait(Append(100), false, io::kNoDeadline).ok());
  ASSERT_TRUE(Durable(Append(100)).ok());
  EXPECT_EQ(log().durable_sequence(), 6u);
  EXPECT_LE(log().counters().syncs, 2u);
}

TEST_F(LogTest, NobodyWaitingIsWrittenAfterTheTimer) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  RunFor(5'000 * kMs);  // The log thread goes idle...
  Append(100);
  RunFor(90 * kMs);
  EXPECT_EQ(log().written_sequence(), 1u);
  RunFor(20 * kMs);  // ...and is there all the same.
  EXPECT_EQ(log().written_sequence(), 2u);
  EXPECT_EQ(log().durable_sequence(), 1u);
  EXPECT_EQ(log().counters().led_by_thread, 1u);
}

TEST_F(LogTest, RequestNeedsNoWaiter) {
  fixture_.OpenLog();
  log().Request(Append(100), true);
  RunFor(5 * kMs);
  EXPECT_EQ(log().durable_sequence(), 1u);
  const uint64_t second = Append(100);
  log().Request(second, false);
  RunFor(5 * kMs);
  EXPECT_EQ(log().written_sequence(), 2u);
  EXPECT_EQ(log().durable_sequence(), 1u);
  log().Request(second, true);
  RunFor(5 * kMs);
  EXPECT_EQ(log().durable_sequence(), 2u);
}

TEST_F(LogTest, DurableWriteIsOneOperation) {
  fixture_.options.sync_method = SyncMethod::kDurableWrite;
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  std::vector<io::SimOp> operations;
  machine_.disk->set_on_operation([&](const io::SimOperation& op) {
    if (op.path == SegmentPath("log", 1)) operations.push_back(op.op);
  });
  ASSERT_TRUE(Durable(Append(100)).ok());
  EXPECT_EQ(operations, std::vector<io::SimOp>{io::SimOp::kDurableWrite});
  // Behind unsynced data it would prove nothing about that.
  ASSERT_TRUE(log().Wait(Append(100), false, io::kNoDeadline).ok());
  operations.clear();
  ASSERT_TRUE(Durable(Append(100)).ok());
  EXPECT_EQ(operations, (std::vector<io::SimOp>{io::SimOp::kWrite, io::SimOp::kSync}));
}

TEST_F(LogTest, WaitHasADeadline) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  // Somebody reserves and is slow to fill; another waits for what comes after.
  TestRecord slow = Payload(99, 100);
  slow.kind = 1;
  slow.fields.clear();
  const Strip strip{0, 100};
  auto slot = log().Reserve({1, false, 0, {}, {&strip, 1}}, Log::Purpose::kData);
  ASSERT_TRUE(slot.ok());
  slow.sequence = slot->sequence;
  log().Request(slot->sequence, true);
  RunFor(1 * kMs);  // The log thread leads the group and waits for the filler.
  const uint64_t now = machine_.scheduler->MonotonicNs();
  EXPECT_EQ(log().Wait(slot->sequence, true, now + 3 * kMs).code(), StatusCode::kDeadlineExceeded);
  Fill(log(), *slot, slow);
  EXPECT_TRUE(Durable(slow.sequence).ok());
}

TEST_F(LogTest, EverySyncBeginsAfterTheWritesItVouchesFor) {
  // Two large groups in flight: the sync of the second must wait for the write of the first.
  fixture_.options.segment_bytes = 8 << 20;
  fixture_.options.hot_tail_bytes = 16 << 20;
  fixture_.options.chunk_bytes = 2 << 20;
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  std::vector<std::unique_ptr<io::Thread>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(machine_.scheduler->StartThread("appender", [&] {
      for (int n = 0; n < 2; ++n) {
        const uint64_t sequence = Append(600'000);
        EXPECT_TRUE(Durable(sequence).ok());
        // The truth of it: a crash right now keeps the record.
        const auto crashed = io::CrashWorld(*machine_.disk, io::CrashChoice::LoseAll());
        io::World world = crashed.world();
        RecoveryOptions options;
        options.directory = "log";
        options.store = kTestStore;
        const Recovered found = RecoverLog(world, options, /*read_payload=*/false);
        EXPECT_TRUE(found.status.ok()) << found.status.ToString();
        EXPECT_GE(found.log.last_sequence, sequence);
      }
    }));
  }
  threads.clear();
  ExpectRecovered(13);
}

TEST_F(LogTest, PiecesAreWrittenWhileTheNextAreGathered) {
  fixture_.options.segment_bytes = 8 << 20;
  fixture_.options.hot_tail_bytes = 16 << 20;
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  TestRecord record = WithStrips(3, {700'000, 1'000'000, 300'001});
  std::vector<Strip> strips;
  for (const auto& strip : record.strips)
    strips.push_back({9, static_cast<uint32_t>(strip.size())});
  auto slot = log().Reserve({record.kind, false, 0, record.fields, strips}, Log::Purpose::kData);
  ASSERT_TRUE(slot.ok());
  record.sequence = slot->sequence;
  uint64_t early_writes = 0;
  machine_.disk->set_on_operation([&](const io::SimOperation& op) {
    if (op.op == io::SimOp::kWrite && slot->group != nullptr) ++early_writes;
  });
  Fill(log(), *slot, record, 100'000);
  EXPECT_GE(early_writes, 3u);
  ASSERT_TRUE(Durable(record.sequence).ok());
  fixture_.appended.push_back(record);
  ExpectRecovered(2);
}

// ---------------------------------------------------------------- arguments and limits

TEST_F(LogTest, BadArgumentsAreRefused) {
  fixture_.options.segment_bytes = 100'000;
  EXPECT_EQ(fixture_.TryOpenLog().code(), StatusCode::kInvalidArgument);
  fixture_.options.segment_bytes = 256 << 10;
  fixture_.options.hot_tail_bytes = 1000;
  EXPECT_EQ(fixture_.TryOpenLog().code(), StatusCode::kInvalidArgument);
  fixture_.options.hot_tail_bytes = 1 << 20;
  fixture_.OpenLog();
  const Strip huge{0, 256 << 10};
  EXPECT_EQ(log().Reserve({1, false, 0, {}, {&huge, 1}}, Log::Purpose::kData).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(log().Reserve({0, false, 0, {}, {}}, Log::Purpose::kData).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(log().last_reserved_sequence(), 0u);
}

TEST_F(LogTest, TheLargestRecordFits) {
  fixture_.OpenLog();
  const uint64_t payload = log().max_record_bytes() / 64 * 64 - 128;
  for (int i = 0; i < 3; ++i) {
    TestRecord record;
    record.kind = 1;
    record.strips.push_back(BytesOf(static_cast<uint64_t>(i), payload));
    ASSERT_TRUE(Durable(fixture_.Append(record)).ok());
  }
  ExpectRecovered(3);
}

TEST_F(LogTest, FullMemoryIsBusyAndRoomComesBack) {
  fixture_.OpenLog();
  uint64_t busy = 0;
  for (int i = 0; i < 200; ++i) {
    const auto sequence = TryAppend(30'000);
    if (sequence.ok()) continue;
    ASSERT_EQ(sequence.status().code(), StatusCode::kBusy);
    ++busy;
    ASSERT_TRUE(log().WaitForRoom(io::kNoDeadline).ok());
  }
  EXPECT_GT(busy, 0u);
  EXPECT_EQ(log().counters().busy, busy);
  ASSERT_TRUE(log().Flush(io::kNoDeadline).ok());
  ExpectRecovered(log().last_reserved_sequence());
}

TEST_F(LogTest, WaitForRoomLeadsNoGroupWithOpenSlots) {
  fixture_.OpenLog();
  // One thread holds an unpublished slot while it runs out of room: it must not wait for itself.
  const Strip strip{0, 100};
  auto slot = log().Reserve({1, false, 0, {}, {&strip, 1}}, Log::Purpose::kData);
  ASSERT_TRUE(slot.ok());
  TestRecord mine;
  mine.kind = 1;
  mine.sequence = slot->sequence;
  mine.strips.push_back(BytesOf(1, 100));
  fixture_.appended.push_back(mine);
  Status room;
  for (int i = 0; i < 40; ++i) {
    if (TryAppend(40'000).ok()) continue;
    room = log().WaitForRoom(machine_.scheduler->MonotonicNs() + kMs);
    if (!room.ok()) break;
  }
  EXPECT_EQ(room.code(), StatusCode::kDeadlineExceeded);
  Fill(log(), *slot, mine);
  ASSERT_TRUE(log().Flush(io::kNoDeadline).ok());
  ExpectRecovered(log().last_reserved_sequence());
}

TEST_F(LogTest, AllocationFailureIsAStatus) {
  struct Context {
    bool fail = false;
  } context;
  fixture_.options.allocator = {[](void* c, size_t bytes, size_t alignment) -> void* {
                                  if (static_cast<Context*>(c)->fail) return nullptr;
                                  return Allocator::Default().allocate(nullptr, bytes, alignment);
                                },
                                [](void*, void* memory, size_t bytes, size_t alignment) {
                                  Allocator::Default().deallocate(nullptr, memory, bytes,
                                                                  alignment);
                                },
                                &context};
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  context.fail = true;
  Status failure;
  for (int i = 0; i < 100 && failure.ok(); ++i) {
    const auto sequence = TryAppend(20'000);
    failure = sequence.ok() ? Durable(*sequence) : sequence.status();
    if (failure.code() == StatusCode::kBusy) failure = log().WaitForRoom(io::kNoDeadline);
  }
  EXPECT_EQ(failure.code(), StatusCode::kOutOfMemory) << failure.ToString();
  context.fail = false;
  ASSERT_TRUE(Durable(Append(20'000)).ok());
  const uint64_t last = log().last_reserved_sequence();
  fixture_.log.reset();  // Before the context.
  ExpectRecovered(last);
}

// ---------------------------------------------------------------- hot tail

TEST_F(LogTest, HotTailServesPublishedRecordsUntilItIsRecycled) {
  fixture_.OpenLog();
  const uint64_t first = Append(5000);
  ASSERT_TRUE(Durable(first).ok());
  Pinned pinned = log().FindHot(1, 4096 + 64, 5000);
  ASSERT_NE(pinned.owner, nullptr);
  const std::vector<std::byte> copy(pinned.bytes.begin(), pinned.bytes.end());
  EXPECT_EQ(log().FindHot(1, 4096, 1 << 20).owner, nullptr);  // More than there is.
  EXPECT_EQ(log().FindHot(9, 4096, 64).owner, nullptr);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Durable(Append(30'000)).ok());
  // A pinned chunk is not written over, whatever came after.
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), pinned.bytes.begin()));
  EXPECT_LE(log().counters().hot_bytes, fixture_.options.hot_tail_bytes);
  pinned = {};
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Durable(Append(30'000)).ok());
  EXPECT_EQ(log().FindHot(1, 4096 + 64, 5000).owner, nullptr);
  // It still can be read from the segment.
  const auto file = log().OpenSegment(1);
  ASSERT_TRUE(file.ok());
  const AlignedBuffer block = AlignedBuffer::TryAllocate(Allocator::Default(), 8192, kBlock);
  ASSERT_TRUE((*file)->Read(4096, block.span()).ok());
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), block.data() + 64));
  EXPECT_EQ(log().OpenSegment(1).value(), *file);  // Cached.
  EXPECT_EQ(log().OpenSegment(999).status().code(), StatusCode::kNotFound);
}

TEST_F(LogTest, PinnedMemoryOutlivesTheLog) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(5000)).ok());
  const Pinned pinned = log().FindHot(1, 4096, 64);
  fixture_.log.reset();
  EXPECT_EQ(static_cast<char>(pinned.bytes[8]), 'C');  // Of the group's magic.
}

// ---------------------------------------------------------------- failures

struct Failure {
  const char* name;
  io::SimOp op;
};
// Else the test's name would hold addresses.
void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class LogFailureTest : public LogTest, public ::testing::WithParamInterface<Failure> {};

TEST_P(LogFailureTest, PoisonsAndSaysWhatIsUnknown) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& op) {
                                 return op.op == GetParam().op && op.path == SegmentPath("log", 1);
                               },
                           .error = kEio});
  const uint64_t second = Append(100);
  const uint64_t third = Append(100);
  const Status failed = Durable(third);
  EXPECT_EQ(failed.code(), StatusCode::kUnknownOutcome) << failed.ToString();
  EXPECT_EQ(Durable(second).code(), StatusCode::kUnknownOutcome);
  EXPECT_TRUE(Durable(1).ok());  // What was acknowledged stays so.
  EXPECT_FALSE(log().poisoned().ok());
  EXPECT_EQ(TryAppend(100).status().code(), StatusCode::kPoisoned);
  EXPECT_EQ(log().WaitForRoom(io::kNoDeadline).code(), StatusCode::kPoisoned);
  EXPECT_EQ(observer_.poisons_, 1);
  EXPECT_EQ(observer_.acknowledged_, 1u);
  EXPECT_NE(observer_.cause_.message().find("0000000000000001.log"), std::string_view::npos);
  uint64_t retries = 0;
  machine_.disk->set_on_operation([&](const io::SimOperation& op) {
    if (op.path == SegmentPath("log", 1)) ++retries;
  });
  EXPECT_TRUE(log().Close().ok());
  EXPECT_EQ(retries, 0u);
  machine_.disk->set_on_operation(nullptr);
  fixture_.log.reset();

  // The engine's reload: up to what was acknowledged, then on in a new epoch.
  RecoveryOptions options;
  options.directory = "log";
  options.store = kTestStore;
  options.stop_after = 1;
  const Recovered found = RecoverLog(fixture_.world, options);
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  EXPECT_EQ(found.log.last_sequence, 1u);
  fixture_.appended.resize(1);
  fixture_.OpenLog(found.log);
  ASSERT_TRUE(Durable(Append(300)).ok());
  fixture_.log.reset();
  ExpectRecovered(2);
}

INSTANTIATE_TEST_SUITE_P(, LogFailureTest,
                         ::testing::Values(Failure{"Write", io::SimOp::kWrite},
                                           Failure{"Sync", io::SimOp::kSync}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(LogTest, WhatWasNotHandedToAWriteIsPoisonedNotUnknown) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  // The second group's write fails while a third is forming behind it.
  uint64_t third = 0;
  Status third_status, second_status;
  bool armed = true;
  machine_.disk->AddFault({.when =
                               [&](const io::SimOperation& op) {
                                 if (op.op != io::SimOp::kSync || !armed ||
                                     op.path != SegmentPath("log", 1)) {
                                   return false;
                                 }
                                 armed = false;
                                 return true;
                               },
                           .error = kEio});
  std::unique_ptr<io::Thread> other;
  const uint64_t second = Append(100);
  other = machine_.scheduler->StartThread("second", [&] { second_status = Durable(second); });
  while (armed) machine_.scheduler->Yield();
  third = Append(100);
  third_status = Durable(third);
  other.reset();
  EXPECT_EQ(second_status.code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(third_status.code(), StatusCode::kPoisoned);
}

TEST_F(LogTest, AFailedPieceFailsTheGroup) {
  fixture_.options.segment_bytes = 8 << 20;
  fixture_.options.hot_tail_bytes = 16 << 20;
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  machine_.disk->AddFault({.when =
                               [](const io::SimOperation& op) {
                                 return op.op == io::SimOp::kWrite && op.offset > 1'000'000;
                               },
                           .error = kEio});
  EXPECT_EQ(Durable(Append(2'000'000)).code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(TryAppend(10).status().code(), StatusCode::kPoisoned);
}

TEST_F(LogTest, AFailedDirectorySyncPoisons) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(10)).ok());
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kSyncDirectory; },
       .error = kEio});
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    const auto sequence = TryAppend(20'000);
    if (!sequence.ok()) {
      status = sequence.status().code() == StatusCode::kBusy ? log().WaitForRoom(io::kNoDeadline)
                                                             : sequence.status();
    } else {
      status = Durable(*sequence);
    }
  }
  EXPECT_EQ(status.code(), StatusCode::kPoisoned) << status.ToString();
  EXPECT_EQ(observer_.poisons_, 1);
}

TEST_F(LogTest, StallsAreToldAndCounted) {
  constexpr uint64_t kSlow = 400 * kMs;  // A write and a sync of it: three quarters of a stall.
  const io::SimWorld slow =
      io::MakeSimWorld(7, {.write = {kSlow, kSlow}, .durable = {kSlow, kSlow}});
  Observer observer;
  LogFixture fixture(slow.world());
  fixture.options.observer = &observer;
  fixture.OpenLog();
  // Each append fills a segment, until the next one is not ready.
  while (fixture.log->counters().segments_live < 4) {
    const uint64_t sequence = fixture.Append(Payload(fixture.appended.size() + 1, 200'000));
    ASSERT_TRUE(fixture.log->Wait(sequence, true, io::kNoDeadline).ok());
  }
  const Log::Counters counters = fixture.log->counters();
  EXPECT_GE(counters.slow_groups, 1u) << "the first of a segment closes the one before";
  EXPECT_EQ(counters.slow_groups, observer.Count("a group took"));
  EXPECT_GE(counters.segment_late, 1u);
  EXPECT_EQ(counters.no_segment, 0u);
  EXPECT_EQ(counters.segment_bytes_live, counters.segments_live * fixture.options.segment_bytes);
  fixture.log.reset();  // Before its observer.
}

// ---------------------------------------------------------------- space

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

// What a release opened when nothing else was left is not for data, however much of it is free; and
// the last segment is not for releases.
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
  EXPECT_EQ(log().counters().segments_spare, 1u);
  EXPECT_LE(grant.taken_, grant.limit_ - grant.reserve_);
  const auto reclaim = TryAppend(64, Log::Purpose::kReclaim);
  ASSERT_TRUE(reclaim.ok());
  ASSERT_TRUE(Durable(*reclaim).ok());
  RunFor(100 * kMs);
  EXPECT_EQ(log().counters().segments_spare, 1u) << "out of the reserve";
  EXPECT_EQ(grant.taken_, grant.limit_);

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
  EXPECT_EQ(TryAppend(20'000).status().code(), StatusCode::kNoSpace);  // This one kicks the pool.
  RunFor(50 * kMs);
  EXPECT_EQ(fill().code(), StatusCode::kNoSpace);
  EXPECT_GT(log().last_reserved_sequence(), before + 10);
  fixture_.log.reset();  // Before its grant.
}

// What gives space back may take the last segment. Then the next is made where it is wanted.
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
  EXPECT_TRUE(log().CheckRoom(small).ok());  // Behind what is there.
  EXPECT_EQ(log().CheckRoom(one).code(), StatusCode::kNoSpace);
  grant.limit_ += segment;
  EXPECT_TRUE(log().CheckRoom(one).ok());
  const Status refused = log().CheckRoom(two);
  EXPECT_EQ(refused.code(), StatusCode::kNoSpace);
  EXPECT_NE(refused.ToString().find("2 are needed, there is room for 1"), std::string::npos);
  grant.limit_ += segment;
  EXPECT_TRUE(log().CheckRoom(two).ok());
  fixture_.log.reset();  // Before its grant.
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
  touch("log/spare-0000000000000001.log");  // Of no length: not usable.
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

TEST_F(LogTest, AllWhoWaitForOneSyncAreTold) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  const uint64_t second = Append(100);
  ASSERT_TRUE(log().Wait(second, false, io::kNoDeadline).ok());
  const uint64_t syncs = log().counters().syncs;
  std::vector<std::unique_ptr<io::Thread>> threads;
  int told = 0;
  for (int i = 0; i < 5; ++i) {
    threads.push_back(machine_.scheduler->StartThread("waiter", [&] {
      EXPECT_TRUE(Durable(second).ok());
      ++told;
    }));
  }
  threads.clear();
  EXPECT_EQ(told, 5);
  EXPECT_EQ(log().counters().syncs, syncs + 1);
}

// A slow sync ends after one that began later and covers less than what was written since: then
// whoever still sleeps has to be asked to sync that.
TEST_F(LogTest, ASyncThatWasOvertakenLeavesNobodyAsleep) {
  fixture_.options.segment_bytes = 8 << 20;
  fixture_.options.hot_tail_bytes = 16 << 20;
  fixture_.options.chunk_bytes = 2 << 20;
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  const uint64_t second = Append(100);
  ASSERT_TRUE(log().Wait(second, false, io::kNoDeadline).ok());
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kSync; },
       .delay_ns = 500 * kMs});
  const auto slow =
      machine_.scheduler->StartThread("slow", [&] { EXPECT_TRUE(Durable(second).ok()); });
  RunFor(1 * kMs);
  EXPECT_EQ(log().durable_sequence(), 1u);
  ASSERT_TRUE(Durable(Append(600'000)).ok());  // Of its own group, so that it waits for nobody.
  EXPECT_EQ(log().durable_sequence(), 3u);
  const uint64_t fourth = Append(600'000);
  ASSERT_TRUE(log().Wait(fourth, false, io::kNoDeadline).ok());
  const uint64_t now = machine_.scheduler->MonotonicNs();
  const auto hasty = machine_.scheduler->StartThread("hasty", [&] {
    EXPECT_EQ(log().Wait(fourth, true, now + 10 * kMs).code(), StatusCode::kDeadlineExceeded);
  });
  RunFor(1 * kMs);
  const auto patient =
      machine_.scheduler->StartThread("patient", [&] { EXPECT_TRUE(Durable(fourth).ok()); });
  RunFor(100 * kMs);
  EXPECT_EQ(log().durable_sequence(), 3u);
  RunFor(500 * kMs);
  EXPECT_EQ(log().durable_sequence(), fourth);
}

TEST_F(LogTest, AFailedSyncOfWhatWasWrittenPoisons) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  const uint64_t second = Append(100);
  ASSERT_TRUE(log().Wait(second, false, io::kNoDeadline).ok());
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kSync; },
       .error = kEio});
  EXPECT_EQ(Durable(second).code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(observer_.poisons_, 1);
  EXPECT_EQ(observer_.cause_.code(), StatusCode::kIoError);
  EXPECT_EQ(log().durable_sequence(), 1u);
  EXPECT_EQ(TryAppend(10).status().code(), StatusCode::kPoisoned);
}

TEST_F(LogTest, ALogOpenedForReadingTakesNothing) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(100)).ok());
  fixture_.log.reset();
  fixture_.options.read_only = true;
  fixture_.Reopen();
  const Status refused = TryAppend(10).status();
  EXPECT_EQ(refused.code(), StatusCode::kReadOnly);
  EXPECT_EQ(refused.message(), "the log was opened for reading only");
}

TEST_F(LogTest, CloseFlushesAndRefusesFurtherRecords) {
  fixture_.OpenLog();
  for (int i = 0; i < 5; ++i) Append(100);
  EXPECT_TRUE(log().Close().ok());
  EXPECT_TRUE(log().Close().ok());
  EXPECT_EQ(log().durable_sequence(), 5u);
  EXPECT_EQ(TryAppend(10).status().code(), StatusCode::kInvalidState);
  fixture_.log.reset();
  const auto crashed = io::CrashWorld(*machine_.disk, io::CrashChoice::LoseAll());
  fixture_.world.files = crashed.disk;
  ExpectRecovered(5);
}

}  // namespace
}  // namespace cairn::wal
