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

// One-token appends are coalesced in it, a batch at a time.
struct CoalescingStore {
  explicit CoalescingStore(uint32_t batch_tokens, uint64_t wait_ns = 3'600'000'000'000) {
    options.delta_batch_tokens = batch_tokens;
    options.delta_batch_wait_ns = wait_ns;
    options.replay_records_max = 64;
    options.world = std::make_shared<io::World>(world);
    SetFailPlan({});  // Ends the plan of the run before.
    store = *Store::Open("/store", options);
    id = *store.RegisterModel(model);
    branch = *store.CreateBranch(id, {.name = "b"});
    sampler.generator = GeneratorKind::kPhilox;
    kv.Write(testing::kSeed, 0, kPositions);
    for (uint64_t i = 0; i < kPositions; ++i) views.push_back(kv.View(i, 1));
  }
  // The i-th token, its KV and a sampler state after it.
  Delta One(uint64_t i) const {
    Delta delta = testing::MakeDelta(std::span(tokens).subspan(i, 1), views[i]);
    delta.sampler = &sampler;
    return delta;
  }
  Result<Ticket> Append(uint64_t i) {
    return branch.Append(One(i), {.durability = Durability::kPower});
  }
  // All of what came with the first `count` tokens.
  void HasAllOf(uint64_t count) const {
    EXPECT_EQ(*branch.length(), count);
    EXPECT_TRUE(testing::HasKv(branch, model, 0, count));
    for (uint64_t i = 1; i <= count; ++i) {
      const auto state = branch.SamplerAt(i);
      EXPECT_TRUE(state.ok() && state->sampler.has_value()) << "the state after " << i;
    }
  }

  static constexpr uint64_t kPositions = 20;
  std::string escaped;
  const io::World world = MakeWholeWorld(std::make_shared<io::SimDisk>(), 1, &escaped);
  Options options = testing::TinyOptions();
  const ModelSpec model = testing::TinyModel();
  const std::vector<TokenId> tokens = testing::Tokens(kPositions);
  testing::KvSet kv{model, testing::Layout::kContiguous, 0, kPositions};
  std::vector<const KvView*> views;
  SamplerState sampler;
  Store store;
  ModelId id{};
  Branch branch;
};

// A waiting caller flushes. If there is no memory for that no accepted append is lost.
TEST(Parts, CoalescedAppendsKeepTheirStatesOverAFlushThatFindsNoMemory) {
  const uint64_t runs = AtEveryAllocation([](uint64_t n) {
    CoalescingStore coalescing(4);
    ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
    Status first;
    {
      const FailingAt failing(n);
      first = ticket.Wait();
    }
    if (!first.ok()) {
      EXPECT_FAILS(first, StatusCode::kOutOfMemory);
    }
    ASSERT_OK(ticket.Wait());
    coalescing.HasAllOf(1);
    EXPECT_EQ(coalescing.escaped, "");
  });
  EXPECT_GT(runs, 20u);
}

// The first of a batch, one in the middle, and the one that fills it.
TEST(Parts, AnAppendToBeCoalescedThatFindsNoMemoryLeavesNoTrace) {
  for (const uint64_t before : {0, 2, 3}) {
    AtEveryAllocation([before](uint64_t n) {
      CoalescingStore coalescing(4);
      std::vector<Ticket> tickets;
      for (uint64_t i = 0; i < before; ++i) {
        ASSERT_OK_ASSIGN(tickets.emplace_back(), coalescing.Append(i));
      }
      Result<Ticket> one = Ticket();
      {
        const FailingAt failing(n);
        one = coalescing.Append(before);
      }
      if (one.ok()) {
        tickets.push_back(*one);
      } else {
        EXPECT_FAILS(one, StatusCode::kOutOfMemory);
      }
      ASSERT_OK(coalescing.store.Flush());
      for (Ticket& ticket : tickets) EXPECT_OK(ticket.Wait());
      coalescing.HasAllOf(tickets.size());
      ASSERT_OK_ASSIGN(Ticket next, coalescing.Append(tickets.size()));
      ASSERT_OK(next.Wait());
      coalescing.HasAllOf(tickets.size() + 1);
      EXPECT_EQ(coalescing.escaped, "");
    });
  }
}

// Whatever it says, it says it again; every ticket has its end, and the store can be opened.
TEST(Parts, AStoreThatFindsNoMemoryWhileItIsClosedIsClosed) {
  for (const bool persistent : {false, true}) {
    const uint64_t runs = AtEveryAllocation([persistent](uint64_t n) {
      CoalescingStore coalescing(4);
      const std::vector<TokenId> two = testing::Tokens(2);
      ASSERT_OK_ASSIGN(Branch other,
                       coalescing.store.CreateBranch(coalescing.id, {.name = "other"}));
      for (int i = 0; i < 20; ++i) ASSERT_OK(other.AppendSync(testing::MakeDelta(two)));
      ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
      Status closed;
      {
        const FailingAt failing(n, persistent);
        closed = coalescing.store.Close();
      }
      if (!closed.ok()) {
        EXPECT_FAILS(closed, StatusCode::kOutOfMemory);
      }
      EXPECT_EQ(coalescing.store.Close().code(), closed.code());
      ASSERT_TRUE(ticket.done());
      const Status appended = ticket.status();
      if (closed.ok()) {
        EXPECT_OK(appended);
      }

      ASSERT_OK_ASSIGN(Store again, Store::Open("/store", coalescing.options));
      ASSERT_OK_ASSIGN(other, again.FindBranch("other"));
      EXPECT_EQ(*other.length(), 40u);
      ASSERT_OK_ASSIGN(coalescing.branch, again.FindBranch("b"));
      if (appended.code() != StatusCode::kUnknownOutcome) coalescing.HasAllOf(appended.ok());
      EXPECT_OK(again.Close());
      EXPECT_EQ(coalescing.escaped, "");
    });
    EXPECT_GT(runs, 100u);
  }
}

TEST(Parts, TheTimerFlushesCoalescedAppendsWhenThereIsMemoryAgain) {
  for (const bool persistent : {false, true}) {
    AtEveryAllocation([persistent](uint64_t n) {
      CoalescingStore coalescing(4, 1'000'000);
      ASSERT_OK_ASSIGN(Ticket ticket, coalescing.Append(0));
      {
        const FailingAt failing(n, persistent);
        coalescing.world.scheduler->Sleep(50'000'000);
      }
      EXPECT_EQ(coalescing.escaped, "");
      EXPECT_OK(ticket.Wait(1'000'000'000));  // Which looks on.
      coalescing.HasAllOf(1);
    });
  }
}

TEST(Parts, ADeadlinePassesWithoutMemory) {
  CoalescingStore coalescing(4);
  const AppendOptions options{.durability = Durability::kPower, .timeout_ns = 1'000'000};
  ASSERT_OK_ASSIGN(Ticket ticket, coalescing.branch.Append(coalescing.One(0), options));
  {
    const FailingAt failing(1, /*persistent=*/true);
    coalescing.world.scheduler->Sleep(50'000'000);
  }
  EXPECT_EQ(coalescing.escaped, "");
  EXPECT_FAILS(ticket.status(), StatusCode::kUnknownOutcome, "the deadline passed");
}

// The log is not through with it before.
TEST(Parts, ADeadlineOfABorrowedAppendPassesWithoutMemory) {
  AtEveryAllocation([](uint64_t n) {
    constexpr uint64_t kMs = 1'000'000;
    std::string escaped;
    const auto disk =
        std::make_shared<io::SimDisk>(io::SimDiskOptions{.durable = {100 * kMs, 100 * kMs}});
    const io::World world = MakeWholeWorld(disk, 1, &escaped);
    Options options = testing::TinyOptions();
    options.allocator = NewAllocator();
    options.submit_copy_max_bytes = 1;
    options.world = std::make_shared<io::World>(world);
    ASSERT_OK_ASSIGN(Store store, Store::Open("/store", options));
    const ModelSpec model = testing::TinyModel();
    ASSERT_OK_ASSIGN(const ModelId id, store.RegisterModel(model));
    ASSERT_OK_ASSIGN(Branch branch, store.CreateBranch(id));
    const std::vector<TokenId> tokens = testing::Tokens(2);
    const AppendOptions append{.durability = Durability::kPower, .timeout_ns = kMs};
    disk->set_on_operation([&](const io::SimOperation& one) {
      if (one.op == io::SimOp::kSync || one.op == io::SimOp::kDurableWrite) {
        world.scheduler->Sleep(100 * kMs);
      }
    });
    {
      const FailingAt failing(n);
      auto ticket =
          CatchBadAlloc([&] { return branch.Append(testing::MakeDelta(tokens), append); });
      if (ticket.ok()) {
        world.scheduler->Sleep(10 * kMs);
        EXPECT_TRUE(ticket->done());
        EXPECT_NE(ticket->status().code(), StatusCode::kOk);
      } else {
        EXPECT_FAILS(ticket, StatusCode::kOutOfMemory);
      }
    }
    EXPECT_EQ(escaped, "");
    EXPECT_OK(store.Close());
    disk->set_on_operation(nullptr);
  });
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
