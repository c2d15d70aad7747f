// SPDX-License-Identifier: Apache-2.0
//
// Property: the log does what wal/log.h says when all is well, when memory is short and when a
// write or a sync fails. (Where space is: log_space_test.cc.) Method: a simulated machine, with
// faults at chosen operations; the order of operations is read off the disk.
#include "tests/wal/log_test.h"

#include <algorithm>

#include "base/core/aligned_buffer.h"
#include "tests/support/status.h"
#include "wal/constants.h"
#include "wal/segment_files.h"

namespace cairn::wal {
namespace {

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
  RunFor(20 * kMs);  // ...and still wakes in time.
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
  auto slot = ReserveWithRoom(log(), {record.kind, false, 0, record.fields, strips});
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
  Pinned pinned = log().FindHot({1, 1, 4096 + 64}, 5000);
  ASSERT_NE(pinned.owner, nullptr);
  const std::vector<std::byte> copy(pinned.bytes.begin(), pinned.bytes.end());
  EXPECT_EQ(log().FindHot({1, 1, 4096}, 1 << 20).owner, nullptr);  // More than there is.
  EXPECT_EQ(log().FindHot({9, 1, 4096}, 64).owner, nullptr);
  EXPECT_EQ(log().FindHot({1, 2, 4096}, 64).owner, nullptr);  // Another epoch.
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Durable(Append(30'000)).ok());
  // A pinned chunk is not written over, whatever came after.
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), pinned.bytes.begin()));
  EXPECT_LE(log().counters().hot_bytes, fixture_.options.hot_tail_bytes);
  pinned = {};
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Durable(Append(30'000)).ok());
  EXPECT_EQ(log().FindHot({1, 1, 4096 + 64}, 5000).owner, nullptr);
  // It still can be read from the segment.
  const auto file = log().OpenSegment(1);
  ASSERT_TRUE(file.ok());
  const AlignedBuffer block = AlignedBuffer::TryAllocate(Allocator::Default(), 8192, kBlock);
  ASSERT_TRUE((*file)->Read(4096, block.span()).ok());
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), block.data() + 64));
  EXPECT_EQ(log().OpenSegment(1).value(), *file);  // Cached.
  EXPECT_EQ(log().OpenSegment(999).status().code(), StatusCode::kNotFound);
}

// Readers sleep, and the thread that publishes wakes all of them.
TEST_F(LogTest, AReaderWaitsForARecordThatIsBeingFilled) {
  fixture_.OpenLog();
  const Strip strip{0, 100};
  auto slot = log().Reserve({1, false, 0, {}, {&strip, 1}}, Log::Purpose::kData);
  ASSERT_TRUE(slot.ok());
  TestRecord mine;
  mine.kind = 1;
  mine.sequence = slot->sequence;
  mine.strips.push_back(BytesOf(1, 100));
  fixture_.appended.push_back(mine);
  const Pinned found = log().FindHot(slot->location, slot->location.bytes);
  ASSERT_NE(found.owner, nullptr);
  const uint64_t begun_ns = machine_.scheduler->MonotonicNs();
  int sealed = 0;
  std::vector<std::unique_ptr<io::Thread>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(machine_.scheduler->StartThread("reader", [&] {
      log().AwaitSealed(found);
      EXPECT_TRUE(IsSealed(found.bytes));
      EXPECT_LT(machine_.scheduler->MonotonicNs(), begun_ns + kMs + 1000);  // Switches of threads.
      ++sealed;
    }));
  }
  RunFor(kMs);
  EXPECT_EQ(sealed, 0);
  Fill(log(), *slot, mine);
  readers.clear();
  EXPECT_EQ(sealed, 3);
  log().AwaitSealed(found);  // At once.
  ASSERT_TRUE(log().Flush(io::kNoDeadline).ok());
  ExpectRecovered(log().last_reserved_sequence());
}

TEST_F(LogTest, PinnedMemoryOutlivesTheLog) {
  fixture_.OpenLog();
  ASSERT_TRUE(Durable(Append(5000)).ok());
  const Pinned pinned = log().FindHot({1, 1, 4096}, 64);
  fixture_.log.reset();
  EXPECT_EQ(static_cast<char>(pinned.bytes[8]), 'C');  // Begins the group's magic.
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
  EXPECT_TRUE(Durable(1).ok());  // Acknowledged records stay so.
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

// One so large that the first pieces are awaited before the last are handed over.
TEST_F(LogTest, PiecesThatFailFailTheGroupAndNoMoreFollow) {
  fixture_.options.segment_bytes = 16 << 20;
  fixture_.options.hot_tail_bytes = 32 << 20;
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(10)));
  uint64_t writes = 0;
  machine_.disk->AddFault({.when =
                               [&](const io::SimOperation& op) {
                                 if (op.op != io::SimOp::kWrite ||
                                     op.path != SegmentPath("log", 1)) {
                                   return false;
                                 }
                                 ++writes;
                                 return true;
                               },
                           .error = kEio,
                           .persistent = true});
  const uint64_t second = Append(8'000'000);
  EXPECT_FAILS(Durable(second), StatusCode::kUnknownOutcome, "0000000000000001.log");
  EXPECT_EQ(writes, kPieceDepth);
  EXPECT_FAILS(TryAppend(10), StatusCode::kPoisoned);
  machine_.disk->ClearFaults();
  fixture_.log.reset();
  ExpectRecovered(1);
}

// So do those written while the next were being gathered; the leader gets no further.
TEST_F(LogTest, EarlyPiecesThatFailFailTheGroupAndNoMoreFollow) {
  fixture_.options.segment_bytes = 16 << 20;
  fixture_.options.hot_tail_bytes = 32 << 20;
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(10)));
  const TestRecord record = Payload(2, 8'000'000);
  const Strip strip{0, 8'000'000};
  ASSERT_OK_ASSIGN(
      Log::Slot slot,
      ReserveWithRoom(log(), {record.kind, false, 0, record.fields, {&strip, 1}}));
  uint64_t writes = 0;
  machine_.disk->AddFault({.when =
                               [&](const io::SimOperation& op) {
                                 if (op.op != io::SimOp::kWrite ||
                                     op.path != SegmentPath("log", 1)) {
                                   return false;
                                 }
                                 ++writes;
                                 return true;
                               },
                           .error = kEio,
                           .persistent = true});
  Fill(log(), slot, record, 100'000);
  EXPECT_EQ(writes, kPieceDepth);
  EXPECT_FAILS(Durable(slot.sequence), StatusCode::kUnknownOutcome, "0000000000000001.log");
  EXPECT_EQ(writes, kPieceDepth);
  EXPECT_FAILS(TryAppend(10), StatusCode::kPoisoned);
  machine_.disk->ClearFaults();
  fixture_.log.reset();
  ExpectRecovered(1);
}

// The group opens a segment, and its leader waits for its last member meanwhile.
TEST_F(LogTest, APoisonedLogFinishesNoSegment) {
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(200'000)));
  RunFor(100 * kMs);  // Until the next segment is ready.
  machine_.disk->AddFault(
      {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kSyncDirectory; },
       .error = kEio});
  const TestRecord record = Payload(2, 100'000);
  const Strip strip{0, 100'000};
  ASSERT_OK_ASSIGN(
      Log::Slot slot,
      log().Reserve({record.kind, false, 0, record.fields, {&strip, 1}}, Log::Purpose::kData));
  ASSERT_EQ(slot.location.segment, 2u);
  Status waited;
  std::unique_ptr<io::Thread> leader =
      machine_.scheduler->StartThread("leader", [&] { waited = Durable(slot.sequence); });
  while (log().poisoned().ok()) RunFor(kMs);
  const uint64_t before = machine_.disk->operations();
  Fill(log(), slot, record);
  leader.reset();
  EXPECT_FAILS(waited, StatusCode::kPoisoned);
  EXPECT_EQ(machine_.disk->operations(), before);
  EXPECT_EQ(observer_.poisons_, 1);
  fixture_.log.reset();
  ExpectRecovered(1);
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

// A slow sync ends after one that began later and covers less than was written since: then a thread
// that still sleeps must be asked to sync that.
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
  ASSERT_TRUE(Durable(Append(600'000)).ok());  // A group of its own, so that it waits for nobody.
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

// It is valid for the caller that asked for it, and may be of a file that is another's by now.
TEST_F(LogTest, AHandleThatWasOpenedWhileTheLogWentOnIsNotKept) {
  fixture_.OpenLog();
  ASSERT_OK(Durable(Append(100)));
  fixture_.log.reset();
  fixture_.options.read_only = true;
  const Recovered found = fixture_.Reopen();
  bool opening = false;
  machine_.disk->AddFault({.when =
                               [&](const io::SimOperation& op) {
                                 opening = opening || op.op == io::SimOp::kOpen;
                                 return op.op == io::SimOp::kOpen;
                               },
                           .delay_ns = kMs});
  std::shared_ptr<io::File> first;
  std::unique_ptr<io::Thread> reader = machine_.scheduler->StartThread(
      "reader", [&] { ASSERT_OK_ASSIGN(first, log().OpenSegment(1)); });
  while (!opening) machine_.scheduler->Yield();
  ASSERT_EQ(first, nullptr);
  ASSERT_OK(log().Follow(found.log, {}));
  reader.reset();
  ASSERT_NE(first, nullptr);
  ASSERT_OK_ASSIGN(const auto second, log().OpenSegment(1));
  EXPECT_NE(first, second);
  ASSERT_OK_ASSIGN(const auto third, log().OpenSegment(1));
  EXPECT_EQ(second, third);
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

// Also of a failed log: what comes next in this directory must not be overwritten by this one.
TEST_F(LogTest, CloseEndsWhenNothingIsUnderWayToTheDisk) {
  constexpr uint64_t kSlowNs = 500 * kMs;
  for (const bool led : {true, false}) {
    SCOPED_TRACE(led);
    io::SimWorld machine = io::MakeSimWorld(7);
    LogFixture fixture(machine.world());
    fixture.options.segment_bytes = 16 << 20;
    fixture.options.hot_tail_bytes = 32 << 20;
    fixture.OpenLog();
    wal::Log& log = *fixture.log;
    // After it the segment has blocks for the large one below.
    ASSERT_OK(log.Wait(fixture.Append(Payload(1, 2'000'000)), true, io::kNoDeadline));
    ASSERT_OK(log.Wait(fixture.Append(Payload(1, 100)), true, io::kNoDeadline));
    const uint64_t second = fixture.Append(Payload(2, 100));
    if (!led) {
      ASSERT_OK(log.Wait(second, false, io::kNoDeadline));
    }

    const auto writes = [](const io::SimOperation& op) {
      return op.op == io::SimOp::kWrite && op.path == SegmentPath("log", 1);
    };
    machine.disk->AddFault({.when = writes, .delay_ns = kSlowNs});
    const uint64_t begin_ns = machine.scheduler->MonotonicNs();
    std::unique_ptr<io::Thread> leader;
    if (led) {
      leader = machine.scheduler->StartThread("leader", [&] {
        EXPECT_FAILS(log.Wait(second, false, io::kNoDeadline), StatusCode::kUnknownOutcome);
      });
      machine.scheduler->Sleep(kMs);
    }
    const TestRecord large = Payload(3, 2'000'000);
    const Strip strip{0, 2'000'000};
    ASSERT_OK_ASSIGN(Log::Slot slot, log.Reserve({large.kind, false, 0, large.fields, {&strip, 1}},
                                                 Log::Purpose::kData));
    Fill(log, slot, large, led ? 0 : 100'000);  // Pieces of it go at once.
    machine.disk->AddFault({.when =
                                [&](const io::SimOperation& op) {
                                  return led ? writes(op) : op.op == io::SimOp::kSync;
                                },
                            .error = kEio});
    EXPECT_FAILS(log.Wait(led ? slot.sequence : second, true, io::kNoDeadline),
                 StatusCode::kUnknownOutcome);
    EXPECT_LT(machine.scheduler->MonotonicNs(), begin_ns + kSlowNs);
    EXPECT_OK(log.Close());
    EXPECT_GE(machine.scheduler->MonotonicNs(), begin_ns + kSlowNs);
    EXPECT_EQ(log.counters().groups_in_flight, 0u);
    leader.reset();
  }
}

}  // namespace
}  // namespace cairn::wal
