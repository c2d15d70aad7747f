// SPDX-License-Identifier: Apache-2.0
//
// Property and method of out_of_memory_test.cc, for parts of the store where no script comes with
// an allocation that fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/out_of_memory.h"
#include "base/io/posix_file.h"
#include "base/io/real_scheduler.h"
#include "sim/disk.h"
#include "sim/world.h"
#include "sstable/block_cache.h"
#include "sstable/constants.h"
#include "sstable/tombstone_ranges.h"
#include "tests/engine/engine_test.h"
#include "tests/memory/failing_at.h"
#include "tests/memory/whole_world.h"
#include "tests/support/log_fixture.h"
#include "tests/support/status.h"
#include "tests/support/test_store.h"
#include "tests/wal/log_test.h"
#include "wal/constants.h"
#include "wal/segment_files.h"
#include "wal/segment_pool.h"

namespace cairn::memory {
namespace {

std::vector<std::string> Names(const Store& store) {
  std::vector<std::string> names;
  const auto page = store.ListBranches("", "", 100);
  EXPECT_OK(page);
  for (const BranchInfo& info : page->branches) names.push_back(info.name);
  return names;
}

TEST(Parts, ARangeOfTombstonesThatFindsNoMemoryIsNotKept) {
  const std::string from(40, 'b'), end(40, 'f');  // Too long to lie in the string itself.
  AtEveryAllocation([&](uint64_t n) {
    sstable::TombstoneRanges ranges;
    const auto search = ranges.Begin(from);
    {
      const FailingAt failing(n);
      ranges.End(search, end);
    }
    EXPECT_EQ(ranges.StartOf(from), AllocationsFailed() == 0 ? end : from);
  });
}

TEST(Parts, ABlockThatFindsNoPlaceIsNotCounted) {
  AtEveryAllocation([](uint64_t n) {
    sstable::BlockCache cache(1 << 20);
    AlignedBuffer block = AlignedBuffer::TryAllocate(Allocator::Default(), sstable::kTableAlignment,
                                                     sstable::kTableAlignment);
    ASSERT_FALSE(block.empty());
    {
      const FailingAt failing(n);
      static_cast<void>(CatchBadAlloc([&] { cache.Insert({1, 0}, std::move(block)); }));
    }
    const bool kept = cache.Find({1, 0}) != nullptr;
    EXPECT_EQ(kept, AllocationsFailed() == 0);
    EXPECT_EQ(cache.bytes(), kept ? sstable::kTableAlignment + sstable::kCacheEntryBytes : 0);
  });
}

TEST(Parts, ALargeRecordIsWrittenWithoutAQueueOfItsOwn) {
  AtEveryAllocation([&](uint64_t n) {
    std::string escaped;
    const auto disk = std::make_shared<io::SimDisk>();
    wal::LogFixture log(MakeWholeWorld(disk, 1, &escaped));
    log.options.allocator = NewAllocator();
    log.options.segment_bytes = 8 << 20;
    log.options.hot_tail_bytes = 16 << 20;
    log.OpenLog();
    const wal::TestRecord record = wal::Payload(3, 2 * wal::kLargePayloadBytes);
    const std::vector<std::byte>& payload = record.strips[0];
    const wal::Strip strip{0, static_cast<uint32_t>(payload.size())};
    ASSERT_OK_ASSIGN(
        wal::Log::Slot slot,
        wal::ReserveWithRoom(*log.log, {record.kind, false, 0, record.fields, {&strip, 1}}));
    std::copy(payload.begin(), payload.end(), slot.payload + slot.strip_offsets[0]);
    uint64_t early_writes = 0;
    disk->set_on_operation(
        [&](const io::SimOperation& one) { early_writes += one.op == io::SimOp::kWrite; });
    {
      const FailingAt failing(n);
      log.log->PieceReady(slot, slot.strip_offsets[0] + payload.size());
    }
    disk->set_on_operation(nullptr);
    EXPECT_EQ(early_writes == 0, AllocationsFailed() != 0);
    const uint64_t hash = Hash(payload);
    log.log->Publish(slot, {&hash, 1});
    ASSERT_OK(log.log->Wait(slot.sequence, true, io::kNoDeadline));
    log.log.reset();
    const wal::Recovered found = log.RecoverAll();
    ASSERT_OK(found.status);
    ASSERT_EQ(found.records.size(), 1u);
    EXPECT_EQ(found.records[0].strips, record.strips);
    EXPECT_EQ(escaped, "");
  });
}

// One that is larger than a piece. With and without a waiter to lead it.
TEST(Parts, ALargeGroupIsWrittenWithoutAQueueOfItsOwn) {
  for (const bool by_waiter : {true, false}) {
    AtEveryAllocation([&](uint64_t n) {
      std::string escaped;
      wal::LogFixture log(MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped));
      log.options.allocator = NewAllocator();
      log.options.segment_bytes = 16 << 20;
      log.options.hot_tail_bytes = 16 << 20;
      log.options.chunk_bytes = 2 << 20;
      log.OpenLog();
      uint64_t last = 0;
      for (uint64_t seed = 0; seed < 16; ++seed) last = log.Append(wal::Payload(seed, 40'000));
      const auto wait = [&] { return log.log->Wait(last, true, io::kNoDeadline); };
      Status waited;
      {
        const FailingAt failing(n);
        if (by_waiter) waited = CatchBadAlloc(wait);
        if (!by_waiter) log.world.scheduler->Sleep(1'000'000'000);
      }
      ASSERT_OK(waited);
      ASSERT_EQ(escaped, "");
      ASSERT_OK(wait());
      EXPECT_EQ(log.log->counters().groups, 1u);
      log.log.reset();
      const wal::Recovered found = log.RecoverAll();
      ASSERT_OK(found.status);
      EXPECT_EQ(found.records, log.appended);
    });
  }
}

// Rounds enough for every allocation that only some groups make.
TEST(Parts, AReservationThatFindsNoMemoryChangesNothing) {
  std::string escaped;
  wal::LogFixture log(MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped));
  log.OpenLog();
  uint64_t failed = 0;
  for (uint64_t round = 0; round < 200 && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const wal::TestRecord record = wal::Payload(round, round % 8 == 7 ? 40'000 : 100);
    const wal::Strip strip{0, static_cast<uint32_t>(record.strips[0].size())};
    AtEveryAllocation([&](uint64_t n) {
      const uint64_t last = log.log->last_reserved_sequence();
      Status refused;
      wal::Log::Slot slot;
      const auto reserve = [&] {
        const FailingAt failing(n);
        return CatchBadAlloc([&]() -> Status {
          CAIRN_ASSIGN_OR_RETURN(
              slot, log.log->Reserve({record.kind, false, 0, record.fields, {&strip, 1}},
                                     wal::Log::Purpose::kData));
          return Status::Ok();
        });
      };
      while ((refused = reserve()).code() == StatusCode::kBusy) {
        ASSERT_OK(log.log->WaitForRoom(io::kNoDeadline));
      }
      if (!refused.ok()) {
        EXPECT_FAILS(refused, StatusCode::kOutOfMemory);
        EXPECT_EQ(log.log->last_reserved_sequence(), last);
        ++failed;
        return;
      }
      log.appended.push_back(record);
      log.appended.back().sequence = slot.sequence;
      wal::Fill(*log.log, slot, record);
      const uint64_t soon = log.world.scheduler->MonotonicNs() + 10'000'000'000;
      ASSERT_OK(log.log->Wait(slot.sequence, true, soon));
    });
  }
  EXPECT_GE(failed, 200u);
  log.log.reset();
  const wal::Recovered found = log.RecoverAll();
  ASSERT_OK(found.status);
  EXPECT_EQ(found.records, log.appended);
  EXPECT_EQ(escaped, "");
}

// A large append whose table exists, and a table that a round of the space thread made.
TEST(Parts, ATableThatNoRecordNamesGoes) {
  const ModelSpec model = testing::TinyModel();
  testing::KvSet kv(model, testing::Layout::kContiguous, 0, 1000);
  kv.Write(testing::kSeed, 0, 1000);
  const std::vector<TokenId> tokens = testing::Tokens(1000);
  const Delta delta = testing::MakeDelta(tokens, kv.View(0, 1000));
  const uint64_t runs = AtEveryAllocation([&](uint64_t n) {
    std::string escaped;
    const auto disk = std::make_shared<io::SimDisk>();
    Options options = testing::TinyOptions();
    options.allocator = NewAllocator();
    options.world = std::make_shared<io::World>(MakeWholeWorld(disk, 1, &escaped));
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id, {.name = "b"}));
    ASSERT_OK(branch.AppendSync(delta));
    Status status;
    {
      const FailingAt failing(n);
      status = store.Compact();
    }
    const std::vector<std::string> files = disk->Files();
    const auto tables = std::count_if(files.begin(), files.end(), [](const std::string& file) {
      return file.ends_with(".snapshot");
    });
    EXPECT_EQ(static_cast<uint64_t>(tables), store.Metrics().tables);
    if (status.ok()) {
      EXPECT_EQ(1, tables);
    }
    EXPECT_EQ(escaped, "");
  });
  EXPECT_GT(runs, 20u);
}

// By the thread of the pool.
TEST(Parts, ASegmentThatFindsNoMemoryTakesNoSpace) {
  AtEveryAllocation([](uint64_t n) {
    std::string escaped;
    const auto disk = std::make_shared<io::SimDisk>();
    const io::World world = MakeWholeWorld(disk, 1, &escaped);
    ASSERT_OK(disk->CreateDirectory("log"));
    wal::Grant grant(UINT64_MAX);
    wal::LogOptions options;
    options.directory = "log";
    options.segment_bytes = 4 * wal::kBlock;
    options.spare_segments_min = options.spare_segments_max = 2;
    options.grant = &grant;
    Status fatal;
    wal::SegmentPool pool(world, options,
                          {.on_ready = [] {},
                           .on_grown = [](uint64_t, uint64_t) {},
                           .on_fatal = [&](const Status& why) { fatal = why; },
                           .check_lock = [] { return Status::Ok(); },
                           .on_event = [](const std::string&) {},
                           .idle_work = nullptr});
    ASSERT_OK(pool.Open(1, 1, /*fill=*/true));
    ASSERT_NE(pool.TakeNext(0, 0).file, nullptr);
    ASSERT_TRUE(pool.Start());
    {
      const FailingAt failing(n);
      pool.Wake();
      world.scheduler->Sleep(10'000'000'000);
    }
    pool.TryAgain();
    world.scheduler->Sleep(10'000'000'000);
    const wal::SegmentPool::Stock stock = pool.stock();
    pool.Stop();
    EXPECT_OK(fatal);
    EXPECT_EQ(stock.spares, 3u);
    EXPECT_EQ(disk->Files().size(), 4u);
    EXPECT_EQ(grant.taken_, 4 * options.segment_bytes);
    EXPECT_EQ(escaped, "");
  });
}

// A segment that must not be written to is reported also without memory for the text.
TEST(Parts, ASegmentWhoseNameMayBeLostIsTold) {
  AtEveryAllocation([](uint64_t n) {
    std::string escaped;
    const auto disk = std::make_shared<io::SimDisk>();
    const io::World world = MakeWholeWorld(disk, 1, &escaped);
    ASSERT_OK(disk->CreateDirectory("log"));
    wal::LogOptions options;
    options.directory = "log";
    options.segment_bytes = 4 * wal::kBlock;
    Status fatal;
    wal::SegmentPool pool(world, options,
                          {.on_ready = [] {},
                           .on_grown = [](uint64_t, uint64_t) {},
                           .on_fatal = [&](const Status& why) { fatal = why; },
                           .check_lock = [] { return Status::Ok(); },
                           .on_event = [](const std::string&) {},
                           .idle_work = nullptr});
    ASSERT_OK(pool.Open(1, 1, /*fill=*/true));
    ASSERT_NE(pool.TakeNext(0, 0).file, nullptr);
    disk->AddFault(
        {.when = [](const io::SimOperation& op) { return op.op == io::SimOp::kSyncDirectory; },
         .error = EIO,
         .persistent = true});
    ASSERT_TRUE(pool.Start());
    {
      const FailingAt failing(n);
      pool.Wake();
      world.scheduler->Sleep(10'000'000'000);
    }
    pool.TryAgain();
    world.scheduler->Sleep(10'000'000'000);
    pool.Stop();
    EXPECT_FAILS(fatal, StatusCode::kIoError);
    EXPECT_EQ(escaped, "");
  });
}

// On a real disk, whose files take memory as well.
TEST(Parts, ASegmentThatFindsNoMemoryLeavesNoFile) {
  const testing::TempDirectory directory;
  const auto world = io::MakeRealWorld(io::IoBackend::kThreads);
  const std::string path = wal::SegmentPath(directory.path(), 1);
  const uint64_t runs = AtEveryAllocation([&](uint64_t n) {
    Status made;
    {
      const FailingAt failing(n);
      made = CatchBadAlloc([&] {
        return wal::MakeSegmentFile(*world->files, path, 2 * wal::kBlock, 2 * wal::kBlock);
      });
    }
    if (!made.ok()) {
      EXPECT_FAILS(made, StatusCode::kOutOfMemory);
    }
    ASSERT_OK_ASSIGN(const auto names, world->files->List(directory.path()));
    EXPECT_EQ(names.size(), made.ok() ? 1u : 0u);
  });
  EXPECT_GT(runs, 2u);
}

TEST(Parts, WhetherASegmentWasUsedIsToldOrRefused) {
  io::SimDisk disk;
  const std::string path = wal::SegmentPath("log", 1);
  ASSERT_OK(disk.CreateDirectory("log"));
  ASSERT_OK(wal::MakeSegmentFile(disk, path, 2 * wal::kBlock, 2 * wal::kBlock));
  AtEveryAllocation([&](uint64_t n) {
    Result<bool> used = true;
    {
      const FailingAt failing(n);
      try {
        used = wal::HoldsRecords(disk, path);
      } catch (const std::bad_alloc&) {  // As everywhere: Open makes a Status of it.
        used = Status(StatusCode::kOutOfMemory, "");
      }
    }
    if (AllocationsFailed() == 0) {
      ASSERT_OK(used);
      EXPECT_FALSE(*used);
    } else {
      EXPECT_FAILS(used, StatusCode::kOutOfMemory);
    }
  });
}

// While a table that was seen is gone.
TEST(Parts, ARefreshThatFindsNoMemoryIsMadeUpFor) {
  const uint64_t runs = AtEveryAllocation([&](uint64_t n) {
    std::string escaped;
    Options options = testing::TinyOptions();
    options.allocator = NewAllocator();
    options.world =
        std::make_shared<io::World>(MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped));
    ASSERT_OK_ASSIGN(Store writer, Store::Open("/store", options));
    const ModelSpec model = testing::TinyModel();
    ASSERT_OK_ASSIGN(const ModelId id, writer.RegisterModel(model));
    const auto change = [&](const std::string& name) {
      ASSERT_OK_ASSIGN(Branch branch, writer.CreateBranch(id, {.name = name}));
      ASSERT_OK(testing::AppendSome(branch, model, 0, 40, testing::kSeed, Durability::kPower));
      ASSERT_OK(writer.Compact());
    };
    change("a");
    options.create_if_missing = false;
    options.read_only = true;
    ASSERT_OK_ASSIGN(Store follower, Store::Open("/store", options));
    const std::vector<std::string> old = Names(follower);
    ASSERT_OK_ASSIGN(Branch a, writer.FindBranch("a"));
    ASSERT_OK(a.Drop(Durability::kPower));
    change("b");
    ASSERT_OK(writer.Flush());

    Result<RefreshResult> first = RefreshResult();
    {
      const FailingAt failing(n);
      first = follower.Refresh();
    }
    if (!first.ok()) {
      EXPECT_FAILS(first, StatusCode::kOutOfMemory);
      EXPECT_EQ(Names(follower), old);
      ASSERT_OK_ASSIGN(const RefreshResult second, follower.Refresh());
      EXPECT_TRUE(second.changed);
    }
    EXPECT_EQ(Names(follower), Names(writer));
    EXPECT_NE(Names(follower), old);
    EXPECT_EQ(escaped, "");
  });
  EXPECT_GT(runs, 50u);
}

// As a host's: its signals must be as they were.
TEST(Parts, AThreadThatFindsNoMemoryIsNone) {
  io::RealScheduler scheduler;
  AtEveryAllocation([&](uint64_t n) {
    std::unique_ptr<io::Thread> thread;
    const std::string name(100, 'n');
    std::atomic<bool> ran = false;
    {
      const FailingAt failing(n);
      static_cast<void>(
          CatchBadAlloc([&] { thread = scheduler.StartThread(name, [&ran] { ran = true; }); }));
    }
    const bool started = thread != nullptr;
    thread.reset();  // Joins.
    EXPECT_EQ(started, ran);
    EXPECT_EQ(started, AllocationsFailed() == 0);
    sigset_t blocked;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
  });
}

// Requests end with a Status, whichever thread reaps them and whatever the disk says.
TEST(Parts, AnErrorOfTheDiskThatFindsNoWordsIsTold) {
  io::UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  io::PosixFile file("/dev/full", std::move(full), /*direct=*/false);
  std::vector<std::byte> bytes(100);
  AtEveryAllocation([&](uint64_t n) {
    Status written;
    {
      const FailingAt failing(n);
      written = file.Write(0, bytes, false);
    }
    const bool found = AllocationsFailed() == 0;
    EXPECT_EQ(written.code(), found ? StatusCode::kNoSpace : StatusCode::kOutOfMemory);
  });
}

}  // namespace
}  // namespace cairn::memory
