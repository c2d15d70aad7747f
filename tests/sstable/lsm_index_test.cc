// SPDX-License-Identifier: Apache-2.0
//
// Property: the index answers from memtable, frozen memtables and tables as if they were one map;
// edits name exactly the files that came and went; no file is deleted before it was released and
// the last reader let go of it; whatever fails leaves all as it was.
#include "sstable/lsm_index.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <set>
#include <thread>

#include "sim/world.h"
#include "tests/sstable/lsm_fixture.h"
#include "tests/support/strike.h"

namespace cairn::sstable {
namespace {

TEST(LsmIndex, TheNewestLayerAnswers) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  const auto expect = [&](const char* value) {
    ASSERT_OK_ASSIGN(const auto found, index->Get("k"));
    EXPECT_EQ(found.value_or("(none)"), value);
    const auto scan = index->NewScan();
    scan->Seek("k");
    const bool live = scan->valid() && scan->key() == "k";
    EXPECT_EQ(live ? std::string(*scan->value()) : "(none)", value);
  };
  expect("(none)");
  Put(*index, "k", "1");
  expect("1");
  ASSERT_OK(index->Freeze(1));
  expect("1");
  Put(*index, "k", "2");
  expect("2");
  ASSERT_OK(index->Flush());
  expect("2");
  ASSERT_OK(index->Freeze(2));
  Delete(*index, "k");
  expect("(none)");
  ASSERT_OK(index->Freeze(3));
  ASSERT_OK(index->Flush());
  expect("(none)");
  ASSERT_OK(index->Flush());
  expect("(none)");
  Put(*index, "k", "3");
  expect("3");
  ASSERT_OK_ASSIGN(const auto none, index->Get("k2"));
  EXPECT_FALSE(none);
}

TEST(LsmIndex, FlushesAreEdits) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  ASSERT_OK_ASSIGN(const bool frozen, index->Freeze(5));
  EXPECT_FALSE(frozen);
  ASSERT_OK_ASSIGN(auto flushed, index->Flush());
  EXPECT_FALSE(flushed);
  for (uint64_t mark = 6; mark < 8; ++mark) {
    Put(*index, KeyOf(mark), "v");
    EXPECT_GT(index->memtable_bytes(), 0u);
    ASSERT_OK_ASSIGN(const bool again, index->Freeze(mark));
    EXPECT_TRUE(again);
    EXPECT_EQ(index->memtable_bytes(), 0u);
  }
  EXPECT_EQ(index->stats().frozen_memtables, 2u);
  EXPECT_GT(index->stats().memtable_bytes, 0u);
  ASSERT_OK_ASSIGN(flushed, index->Flush());
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->mark, 6u);  // The oldest first.
  ASSERT_EQ(flushed->edit.added.size(), 1u);
  EXPECT_EQ(flushed->edit.added[0].level, 0u);
  EXPECT_TRUE(flushed->edit.removed.empty());
  EXPECT_EQ(index->live(), flushed->edit.added);
  // Nothing was applied since: the mark of what is frozen covers it.
  ASSERT_OK_ASSIGN(const bool waiting, index->Freeze(8));
  EXPECT_TRUE(waiting);
  EXPECT_EQ(index->stats().frozen_memtables, 1u);
  ASSERT_OK_ASSIGN(flushed, index->Flush());
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->mark, 8u);
  // A deletion of what no table holds is not written at all.
  Delete(*index, "nobody");
  ASSERT_OK(index->Freeze(9));
  ASSERT_OK_ASSIGN(flushed, index->Flush());
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->mark, 9u);
  EXPECT_TRUE(flushed->edit.added.empty());
}

TEST(LsmIndex, AMergeReplacesFiles) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  Records model;
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 500; ++i) {
      const uint64_t k = i * 4 + round;
      Put(*index, KeyOf(k), ValueOf(k, 30));
      model[KeyOf(k)] = ValueOf(k, 30);
    }
    FlushAll(*index);
    ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
    EXPECT_EQ(edit.has_value(), round == 3);
    if (!edit) continue;
    EXPECT_EQ(edit->removed, (std::vector<uint64_t>{4, 3, 2, 1}));
    EXPECT_GE(edit->added.size(), 3u);  // Split.
    for (const LiveTable& table : edit->added) {
      EXPECT_EQ(table.level, 1u);
      EXPECT_LE(table.bytes, SmallShape().table_bytes + 2 * kIndexBlockBytes);
    }
    EXPECT_EQ(index->live(), edit->added);
  }
  EXPECT_EQ(Walk(*index->NewScan()), LiveOf(model));
  EXPECT_OK(index->Verify());
  ASSERT_OK_ASSIGN(const auto nothing, index->CompactOnce());
  EXPECT_FALSE(nothing);
}

TEST(LsmIndex, AMergeWhoseWritesFailLeavesAllAsItWas) {
  const auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  LsmOptions options = OptionsOf(tables);
  options.shape.table_bytes = 4 << 20;  // More than a writer holds in memory.
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, {}));
  Records model;
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = round; i < 4000; i += 4) {
      Put(*index, KeyOf(i), ValueOf(i, 400));
      model[KeyOf(i)] = ValueOf(i, 400);
    }
    FlushAll(*index);
  }
  const auto before = index->live();
  uint64_t failed = 0;
  bool met = true;
  for (uint64_t n = 0; met; ++n) {
    Status merged;
    {
      const testing::Strike strike(
          *disk, n, [](const io::SimOperation& op) { return op.op == io::SimOp::kWrite; });
      merged = index->CompactOnce().status();
      met = strike.met();
    }
    if (merged.ok()) continue;
    EXPECT_FAILS(merged, StatusCode::kIoError, "t/");
    EXPECT_EQ(index->live(), before) << "write " << n;
    ++failed;
  }
  EXPECT_GT(failed, 1u);
  EXPECT_EQ(Walk(*index->NewScan()), LiveOf(model));
  EXPECT_OK(index->Verify());
}

TEST(LsmIndex, NoFileGoesBeforeItWasReleasedAndLetGo) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 100; ++i) Put(*index, KeyOf(i), "round " + std::to_string(round));
    FlushAll(*index);
  }
  auto scan = index->NewScan();
  scan->Seek("");
  ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
  ASSERT_TRUE(edit);
  ASSERT_EQ(edit->removed.size(), 4u);
  const uint64_t old_bytes = index->stats().removed_bytes;
  EXPECT_GT(old_bytes, 0u);
  const uint64_t taken = tables.callbacks->taken;
  // Not released.
  std::vector<LiveTable> deleted;
  ASSERT_OK(index->DeleteReleased(&deleted));
  EXPECT_TRUE(deleted.empty());
  // Released, but a scan reads them.
  index->Release(edit->removed);
  ASSERT_OK(index->DeleteReleased(&deleted));
  EXPECT_TRUE(deleted.empty());
  EXPECT_EQ(tables.files->List("t")->size(), 4u + edit->added.size());
  EXPECT_EQ(Walk(*scan).size(), 100u);  // Its Seek takes a fresh view.
  ASSERT_OK(index->DeleteReleased(&deleted));
  EXPECT_EQ(deleted.size(), 4u);
  EXPECT_EQ(index->stats().removed_tables, 0u);
  EXPECT_EQ(tables.files->List("t")->size(), edit->added.size());
  EXPECT_EQ(tables.callbacks->taken, taken - old_bytes);
}

TEST(LsmIndex, AFailedDeletionIsTriedAgain) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t round = 0; round < 4; ++round) {
    Put(*index, KeyOf(round), "v");
    FlushAll(*index);
  }
  ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
  ASSERT_TRUE(edit);
  std::vector<LiveTable> deleted;
  ASSERT_OK(index->DeleteReleased(&deleted));
  EXPECT_TRUE(deleted.empty());  // A crash now would bring back a log that names them.
  EXPECT_EQ(disk->Files().size(), 5u);
  index->Release(edit->removed);
  disk->AddFault({.when = nullptr, .at_index = disk->operations() + 1, .error = EIO});
  EXPECT_FAILS(index->DeleteReleased(&deleted), StatusCode::kIoError, ".index");
  EXPECT_EQ(deleted.size(), 3u);  // The others go.
  EXPECT_EQ(index->stats().removed_tables, 1u);
  ASSERT_OK(index->DeleteReleased(&deleted));
  EXPECT_EQ(deleted.size(), 4u);
  EXPECT_EQ(disk->Files().size(), 1u);
}

TEST(LsmIndex, OpensFromTheListOfLiveFiles) {
  TestTables tables = TestTables::InMemory();
  std::vector<LiveTable> live;
  Records model;
  {
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
    for (uint64_t round = 0; round < 7; ++round) {
      for (uint64_t i = 0; i < 300; ++i) {
        const std::string key = KeyOf((i * 7 + round * 13) % 1000);
        Put(*index, key, ValueOf(round * 1000 + i, 50));
        model[key] = ValueOf(round * 1000 + i, 50);
      }
      FlushAll(*index);
      CompactAll(*index);
    }
    live = index->live();
  }
  ASSERT_GT(live.size(), 3u);
  std::reverse(live.begin(), live.end());  // In any order.
  const uint64_t before = tables.reads();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), live));
  EXPECT_EQ(tables.reads() - before, live.size());  // One each.
  EXPECT_EQ(Walk(*index->NewScan()), LiveOf(model));
  EXPECT_OK(index->Verify());
}

TEST(LsmIndex, OpenRefusesWhatCannotBe) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const TableInfo one, WriteTable(tables.context, 1, MakeRecords(10)));
  ASSERT_OK_ASSIGN(const TableInfo two, WriteTable(tables.context, 2, MakeRecords(10)));
  const auto open = [&](std::vector<LiveTable> live) {
    return LsmIndex::Open(OptionsOf(tables), live).status();
  };
  EXPECT_OK(open({{1, 0, one.bytes}, {2, 0, two.bytes}}));
  EXPECT_OK(open({{1, 1, one.bytes}, {2, 2, two.bytes}}));
  EXPECT_FAILS(open({{1, 1, one.bytes}, {2, 1, two.bytes}}), StatusCode::kCorruption,
               "overlaps another table of level 1");
  EXPECT_FAILS(open({{1, 0, one.bytes + 4096}}), StatusCode::kCorruption, "0001.index: offset 0");
  EXPECT_FAILS(open({{1, 0, one.bytes}, {1, 1, one.bytes}}), StatusCode::kInvalidArgument,
               "1 is listed twice");
  EXPECT_FAILS(open({{1, kLevels, one.bytes}}), StatusCode::kInvalidArgument, "no level 7");
  EXPECT_FAILS(open({{3, 0, 8192}}), StatusCode::kNotFound, "0003.index");
}

TEST(LsmIndex, ScansEndWhereTheyAreTold) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t i = 0; i < 100; ++i) Put(*index, KeyOf(i), "v");
  FlushAll(*index);
  const auto scan = index->NewScan({.end = KeyOf(20), .read = {}});
  EXPECT_FALSE(scan->valid());
  EXPECT_OK(scan->status());
  EXPECT_EQ(Walk(*scan, KeyOf(15)).size(), 5u);
  EXPECT_EQ(Walk(*scan, KeyOf(20)).size(), 0u);
  EXPECT_EQ(Walk(*scan).size(), 20u);
}

TEST(LsmIndex, MemoryOnly) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  Put(*index, "a", "1");
  FlushAll(*index);
  Put(*index, "b", "2");
  const ReadOptions memory_only{.memory_only = true};
  ASSERT_OK_ASSIGN(const auto found, index->Get("b", memory_only));
  EXPECT_EQ(found, "2");
  EXPECT_FAILS(index->Get("a", memory_only), StatusCode::kBusy);
  const auto scan = index->NewScan({.end = "", .read = memory_only});
  scan->Seek("");
  EXPECT_FAILS(scan->status(), StatusCode::kBusy);
  ASSERT_OK(index->Get("a"));
  EXPECT_OK(index->Get("a", memory_only));
  EXPECT_EQ(Walk(*scan).size(), 2u);
}

TEST(LsmIndex, EveryFailureOfAFlushOrMergeLeavesAllAsItWas) {
  for (const int error : {EIO, ENOSPC}) {
    auto disk = std::make_shared<io::SimDisk>();
    TestTables tables = TestTables::OnDisk(disk);
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
    Records model;
    const auto fill = [&](uint64_t round) {
      for (uint64_t i = 0; i < 400; ++i) {
        const std::string key = KeyOf(i * 3 + round);
        if (i % 5 == round) {
          Delete(*index, key);
          model[key] = std::nullopt;
        } else {
          Put(*index, key, ValueOf(round * 777 + i, 60));
          model[key] = ValueOf(round * 777 + i, 60);
        }
      }
    };
    uint64_t failures = 0;
    const auto fail_until_done = [&](auto&& work) {
      for (uint64_t at = 0;; ++at) {
        disk->ClearFaults();
        const auto live = index->live();
        const uint64_t taken = tables.callbacks->taken;
        const uint64_t struck = disk->faults_struck();
        disk->AddFault({.when = nullptr, .at_index = disk->operations() + at, .error = error});
        const Status status = work();
        if (status.ok()) {
          disk->ClearFaults();
          ASSERT_EQ(disk->faults_struck(), struck);
          return;
        }
        ++failures;
        ASSERT_EQ(status.code(), error == EIO ? StatusCode::kIoError : StatusCode::kNoSpace);
        ASSERT_EQ(index->live(), live);
        ASSERT_EQ(tables.callbacks->taken, taken);
        ASSERT_EQ(disk->Files().size(), live.size() + index->stats().removed_tables);
        ASSERT_EQ(Walk(*index->NewScan()), LiveOf(model));
      }
    };
    for (uint64_t round = 0; round < 4; ++round) {
      fill(round);
      ASSERT_OK(index->Freeze(round));
      fail_until_done([&] { return index->Flush().status(); });
      if (HasFatalFailure()) return;
    }
    fail_until_done([&] { return index->CompactOnce().status(); });
    EXPECT_EQ(index->stats().tables[0], 0u);
    EXPECT_EQ(Walk(*index->NewScan()), LiveOf(model));
    EXPECT_GE(failures, 4 * 5 + 10u);
  }
}

TEST(LsmIndex, WhatTheHostRefusesEndsTheJob) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  Put(*index, "a", "1");
  ASSERT_OK(index->Freeze(1));
  tables.callbacks->refuse_numbers = Status(StatusCode::kPoisoned, "no log to take a number from");
  EXPECT_FAILS(index->Flush(), StatusCode::kPoisoned, "no log");
  tables.callbacks->refuse_numbers = Status::Ok();
  tables.callbacks->capacity = 0;
  EXPECT_FAILS(index->Flush(), StatusCode::kNoSpace, "cap");
  tables.callbacks->capacity = UINT64_MAX;
  ASSERT_OK_ASSIGN(const auto flushed, index->Flush());
  EXPECT_TRUE(flushed);
}

// Callbacks that are in the middle of something when a table is begun.
class CallingCallbacks final : public TableCallbacks {
 public:
  explicit CallingCallbacks(TestCallbacks& callbacks) : callbacks_(callbacks) {}
  Result<uint64_t> NewTableNumber() override {
    if (on_number) on_number();
    return callbacks_.NewTableNumber();
  }
  Status TakeSpace(uint64_t bytes) override { return callbacks_.TakeSpace(bytes); }
  void ReturnSpace(uint64_t bytes) override { callbacks_.ReturnSpace(bytes); }

  std::function<void()> on_number;

 private:
  TestCallbacks& callbacks_;
};

TEST(LsmIndex, TheSecondOfTwoMergesIsToldToWait) {
  TestTables tables = TestTables::InMemory();
  CallingCallbacks callbacks(*tables.callbacks);
  tables.context.callbacks = &callbacks;
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t round = 0; round < 4; ++round) {
    Put(*index, KeyOf(round), "v");
    FlushAll(*index);
  }
  const auto live = index->live();
  uint64_t refused = 0;
  bool first_fails = true;
  callbacks.on_number = [&] {
    EXPECT_FAILS(index->CompactOnce(), StatusCode::kBusy, "tables are being merged");
    EXPECT_EQ(index->live(), live);
    ++refused;
    tables.callbacks->refuse_numbers =
        first_fails ? Status(StatusCode::kPoisoned, "no log") : Status();
  };
  // However the first one ends, another may begin then.
  EXPECT_FAILS(index->CompactOnce(), StatusCode::kPoisoned, "no log");
  first_fails = false;
  ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
  ASSERT_TRUE(edit);
  EXPECT_EQ(edit->removed.size(), 4u);
  EXPECT_EQ(index->live(), edit->added);
  EXPECT_EQ(refused, 2u);
  ASSERT_OK_ASSIGN(const auto nothing, index->CompactOnce());
  EXPECT_FALSE(nothing);
  EXPECT_EQ(Walk(*index->NewScan()).size(), 4u);
}

TEST(LsmIndex, DamageIsReportedAndTheRestGoesOn) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 400; ++i) Put(*index, KeyOf(i), ValueOf(round + i, 100));
    FlushAll(*index);
  }
  ASSERT_OK(disk->FlipBit(tables.Path(4), 50, 1));
  EXPECT_FAILS(index->Get(KeyOf(0)), StatusCode::kCorruption, "0004.index: offset 0");
  EXPECT_OK(index->Get(KeyOf(399)));  // In another block.
  const auto scan = index->NewScan();
  scan->Seek("");
  EXPECT_FAILS(scan->status(), StatusCode::kCorruption, "0004.index: offset 0");
  EXPECT_FAILS(index->CompactOnce(), StatusCode::kCorruption, "0004.index: offset 0");
  EXPECT_FAILS(index->Verify(), StatusCode::kCorruption, "0004.index: offset 0");
  EXPECT_EQ(index->live().size(), 4u);
  EXPECT_EQ(disk->Files().size(), 4u);
}

TEST(LsmIndex, NoMemoryForAMemtable) {
  TestTables tables = TestTables::InMemory();
  TestAllocator memory;
  tables.context.allocator = memory.allocator();
  memory.refuse_at = 0;
  EXPECT_FAILS(LsmIndex::Open(OptionsOf(tables), {}), StatusCode::kOutOfMemory);
  memory.refuse_at = UINT64_MAX;
  {
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
    Put(*index, "a", "1");
    memory.refuse_at = memory.allocations;
    EXPECT_FAILS(index->Freeze(1), StatusCode::kOutOfMemory);
    ASSERT_OK_ASSIGN(const auto found, index->Get("a"));
    EXPECT_EQ(found, "1");
    EXPECT_FAILS(index->NewBatch().Put("b", "2"), StatusCode::kOutOfMemory);
    memory.refuse_at = UINT64_MAX;
    ASSERT_OK(index->Freeze(1));
    ASSERT_OK(index->Flush());
  }
  EXPECT_GT(memory.allocations, 3u);
  tables.cache = nullptr;
  EXPECT_EQ(memory.live, 0u);
}

// In simulation every transfer may switch to another fiber: writers, readers, a flusher and a
// merger run into each other everywhere that they can.
TEST(LsmIndex, EveryoneAtOnceInSimulation) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    io::SimWorld world = io::MakeSimWorld(seed);
    TestTables tables = TestTables::OnDisk(world.disk, 64 << 10);
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
    bool done = false;
    uint64_t busy = 0;
    const auto maintain = [&](auto&& work) {
      while (!done) {
        const Status status = work();
        if (status.code() == StatusCode::kBusy) {
          ++busy;
        } else {
          ASSERT_OK(status);
        }
        world.scheduler->Sleep(50'000);
      }
    };
    std::vector<std::unique_ptr<io::Thread>> threads;
    for (int i = 0; i < 2; ++i) {
      threads.push_back(world.scheduler->StartThread(
          "flush", [&] { maintain([&] { return index->Flush().status(); }); }));
      threads.push_back(world.scheduler->StartThread("merge", [&] {
        maintain([&]() -> Status {
          auto edit = index->CompactOnce();
          if (!edit.ok()) return edit.status();
          if (*edit) index->Release((*edit)->removed);
          return index->DeleteReleased();
        });
      }));
    }
    threads.push_back(world.scheduler->StartThread("read", [&] {
      for (uint64_t i = 0; !done; ++i) {
        // Each pair of keys is written in one batch and never deleted: both exist or neither.
        const std::string key = KeyOf(i % 40);
        const auto first = index->Get("a" + key);
        ASSERT_OK(first);
        const auto second = index->Get("b" + key);
        ASSERT_OK(second);
        ASSERT_TRUE(!*first || *second);
        const auto scan = index->NewScan();
        scan->Seek("a");
        while (scan->valid() && scan->key() < "b") scan->Next();
        ASSERT_OK(scan->status());
        world.scheduler->Yield();
      }
    }));
    Records model;
    for (uint64_t i = 0; i < 600; ++i) {
      WriteBatch batch = index->NewBatch();
      for (const char* prefix : {"a", "b"}) {
        const std::string key = prefix + KeyOf(i % 40);
        ASSERT_OK(batch.Put(key, ValueOf(i, 200)));
        model[key] = ValueOf(i, 200);
      }
      const std::string gone = "c" + KeyOf(i % 100);
      if (i % 3 == 0) {
        ASSERT_OK(batch.Put(gone, "x"));
        model[gone] = "x";
      } else {
        ASSERT_OK(batch.Delete(gone));
        model[gone] = std::nullopt;
      }
      index->Apply(std::move(batch));
      if (i % 20 == 0) {
        ASSERT_OK(index->Freeze(i));
      }
      world.scheduler->Yield();
    }
    done = true;
    threads.clear();
    FlushAll(*index);
    CompactAll(*index);
    EXPECT_EQ(Walk(*index->NewScan()), LiveOf(model)) << "seed " << seed;
    EXPECT_OK(index->Verify());
    EXPECT_GT(busy, 0u);
  }
}

TEST(LsmIndex, RealThreads) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  std::atomic<bool> done{false};
  std::atomic<uint64_t> merges{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (uint64_t mark = 1; !done; ++mark) {
      ASSERT_OK(index->Freeze(mark));
      ASSERT_OK(index->Flush());
      ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
      if (edit) {
        index->Release(edit->removed);
        ++merges;
      }
      ASSERT_OK(index->DeleteReleased());
    }
  });
  for (uint64_t r = 0; r < 2; ++r) {
    threads.emplace_back([&] {
      const auto scan = index->NewScan();
      for (uint64_t i = 0; !done; ++i) {
        const std::string key = KeyOf(i % 500);
        const auto found = index->Get(key);
        ASSERT_TRUE(found.ok() && (!*found || (*found)->starts_with(key)));
        const std::string_view both[] = {key, "key"};
        const auto several = index->MultiGet(both);
        ASSERT_TRUE(several[0].ok() && (!*several[0] || (*several[0])->starts_with(key)));
        ASSERT_TRUE(several[1].ok() && !*several[1]);
        scan->Seek(key);
        for (int n = 0; n < 20 && scan->valid(); ++n, scan->Next()) {
          ASSERT_TRUE(scan->value()->starts_with(scan->key()));
        }
        ASSERT_OK(scan->status());
      }
    });
  }
  for (uint64_t i = 0; i < 20'000 || merges < 3; ++i) {
    const std::string key = KeyOf(i * 7 % 500);
    i % 4 == 3 ? Delete(*index, key) : Put(*index, key, key + ValueOf(i, 20));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(index->Verify());
}

}  // namespace
}  // namespace cairn::sstable
