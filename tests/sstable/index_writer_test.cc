// SPDX-License-Identifier: Apache-2.0
//
// Property: a table file is whole or it is not called a table. Whatever fails while it is written,
// and whenever the power goes, a file with a final name holds everything; errors are returned, the
// space taken is returned too, and nothing stays behind but what the opener removes.
// Method: a table is written once for each operation that it takes, with that operation failing,
// and once with the power cut before it, in many ways.
#include "sstable/index_writer.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "sim/world.h"
#include "sstable/index_table.h"
#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

// Two writes' worth.
Records SomeRecords() { return MakeRecords(9000, 30, 9); }

TEST(IndexWriter, EveryOperationFails) {
  const Records records = SomeRecords();
  for (const int error : {EIO, ENOSPC}) {
    bool finished = false;
    uint64_t failures = 0;
    for (uint64_t index = 0; !finished; ++index) {
      auto disk = std::make_shared<io::SimDisk>();
      TestTables tables = TestTables::OnDisk(disk);
      disk->AddFault({.when = nullptr, .at_index = disk->operations() + index, .error = error});
      const auto info = WriteTable(tables.context, 1, records);
      const bool struck = disk->faults_struck() > 0;
      finished = !struck;
      ASSERT_EQ(info.ok(), !struck) << index;
      if (struck) {
        ++failures;
        EXPECT_EQ(info.status().code(), error == EIO ? StatusCode::kIoError : StatusCode::kNoSpace)
            << info.status().ToString();
        EXPECT_TRUE(disk->Files().empty());
        EXPECT_EQ(tables.callbacks->taken, 0u);
      } else {
        EXPECT_EQ(tables.callbacks->taken, info->bytes);
      }
    }
    EXPECT_GE(failures, 6u);  // Create, two writes or more, sync, rename, sync of the directory.
  }
}

TEST(IndexWriter, ShortWritesAndInterruptionsAreGoneOver) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const auto is_write = [](const io::SimOperation& o) { return o.op == io::SimOp::kWrite; };
  disk->AddFault({.when = is_write, .transferred = kTableAlignment});
  disk->AddFault({.when = is_write, .error = EINTR});
  const Records records = SomeRecords();
  ASSERT_OK(WriteTable(tables.context, 1, records));
  EXPECT_EQ(disk->faults_struck(), 2u);
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  EXPECT_OK(table->Verify());
}

TEST(IndexWriter, AnErrorSticks) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK_ASSIGN(auto writer, IndexWriter::Create(tables.context, 1));
  disk->AddFault(
      {.when = [](const io::SimOperation& o) { return o.op == io::SimOp::kWrite; }, .error = EIO});
  Status failed;
  uint64_t added = 0;
  for (; failed.ok(); ++added) failed = writer->Add(KeyOf(added), ValueOf(added, 100));
  EXPECT_FAILS(failed, StatusCode::kIoError, "0001.index.tmp");
  EXPECT_FAILS(writer->Add(KeyOf(added), "x"), StatusCode::kIoError, "0001.index.tmp");
  EXPECT_FAILS(writer->Finish(), StatusCode::kIoError, "0001.index.tmp");
  writer = nullptr;
  EXPECT_TRUE(disk->Files().empty());
  EXPECT_EQ(tables.callbacks->taken, 0u);
}

TEST(IndexWriter, TheHostRefusesSpace) {
  TestTables tables = TestTables::InMemory();
  const Records records = SomeRecords();
  tables.callbacks->taken = 1000;  // Somebody else's.
  tables.callbacks->capacity = 1000 + kTableWriteBytes + 100;
  EXPECT_FAILS(WriteTable(tables.context, 1, records), StatusCode::kNoSpace, "cap");
  EXPECT_EQ(tables.callbacks->taken, 1000u);
  EXPECT_TRUE(tables.files->List("t")->empty());
  // Not a byte is written that was not granted.
  EXPECT_EQ(tables.counters->written_bytes.load(), kTableWriteBytes);
}

TEST(IndexWriter, AFileThatCannotBeRemovedKeepsItsSpace) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  disk->AddFault({.when =
                      [](const io::SimOperation& o) {
                        return o.op == io::SimOp::kSync || o.op == io::SimOp::kRemove;
                      },
                  .error = EIO,
                  .persistent = true});
  EXPECT_FAILS(WriteTable(tables.context, 1, SomeRecords()), StatusCode::kIoError, "sync");
  EXPECT_EQ(tables.callbacks->taken, disk->ReadRaw(tables.Path(1) + ".tmp")->size());
  disk->ClearFaults();
  ASSERT_OK(RemoveTableOrphans(*disk, "t", {}));
  EXPECT_TRUE(disk->Files().empty());
}

TEST(IndexWriter, OneThatIsDroppedLeavesNothing) {
  TestTables tables = TestTables::InMemory();
  {
    ASSERT_OK_ASSIGN(auto writer, IndexWriter::Create(tables.context, 1));
    ASSERT_OK(writer->Add("a", "b"));
    EXPECT_FAILS(IndexWriter::Create(tables.context, 1), StatusCode::kAlreadyExists, "0001");
    EXPECT_EQ(tables.files->List("t")->size(), 1u);
  }
  EXPECT_TRUE(tables.files->List("t")->empty());
}

TEST(IndexWriter, EqualInputGivesEqualBytes) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK(WriteTable(tables.context, 1, SomeRecords()));
  auto second = std::make_shared<io::SimDisk>();
  TestTables others = TestTables::OnDisk(second);
  ASSERT_OK(WriteTable(others.context, 1, SomeRecords()));
  EXPECT_EQ(*disk->ReadRaw(tables.Path(1)), *second->ReadRaw(others.Path(1)));
}

// The disk after a crash: nothing that is called a table may be less than one.
void ExpectWholeOrUnfinished(std::shared_ptr<io::SimDisk> disk, const Records& records,
                             bool finished) {
  TestTables tables = TestTables::OnDisk(disk);
  bool found = false;
  for (const std::string& name : disk->Files()) {
    if (name == tables.Path(1)) {
      found = true;
      ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
      ASSERT_EQ(Walk(*table->NewMergeIterator()), ListOf(records));
    } else {
      ASSERT_EQ(name, tables.Path(1) + ".tmp");
    }
  }
  ASSERT_TRUE(found || !finished);
  // The opener, by a log that does not name the table and by one that does.
  const uint64_t number = 1;
  ASSERT_OK(RemoveTableOrphans(*disk, "t", {&number, 1}));
  EXPECT_EQ(disk->Files().size(), found ? 1u : 0u);
  ASSERT_OK(RemoveTableOrphans(*disk, "t", {}));
  EXPECT_TRUE(disk->Files().empty());
}

TEST(IndexWriter, PowerCutBeforeEveryOperation) {
  const Records records = SomeRecords();
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  std::vector<std::unique_ptr<io::SimDisk>> crashed;
  disk->set_on_operation([&](const io::SimOperation& operation) {
    crashed.push_back(disk->CrashClone(io::CrashChoice::LoseAll()));
    crashed.push_back(disk->CrashClone(io::CrashChoice::KeepAll()));
    const size_t unsynced = disk->unsynced_writes();
    ASSERT_LE(unsynced, 8u);
    for (uint64_t mask = 1; mask + 1 < uint64_t{1} << unsynced; ++mask) {
      crashed.push_back(disk->CrashClone(io::CrashChoice::Mask(mask)));
    }
    for (uint64_t seed = 0; seed < 8; ++seed) {
      crashed.push_back(disk->CrashClone(io::CrashChoice::Seeded(seed * 100 + operation.index)));
    }
  });
  ASSERT_OK(WriteTable(tables.context, 1, records));
  disk->set_on_operation(nullptr);
  EXPECT_GE(crashed.size(), 50u);
  for (auto& state : crashed) {
    ExpectWholeOrUnfinished(std::move(state), records, false);
    if (HasFatalFailure()) return;
  }
  // Once Finish has returned, no crash takes the table.
  EXPECT_EQ(disk->unsynced_writes(), 0u);
  ExpectWholeOrUnfinished(disk->CrashClone(io::CrashChoice::LoseAll()), records, true);
}

TEST(IndexWriter, ADiskThatLiesIsNoticed) {
  // The same check fails where syncs do nothing: it can fail.
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  disk->set_drop_syncs(true);
  ASSERT_OK(WriteTable(tables.context, 1, SomeRecords()));
  const auto crashed = disk->CrashClone(io::CrashChoice::LoseAll());
  EXPECT_TRUE(crashed->Files().empty());
}

TEST(IndexWriter, OrphansAreRemovedAndOthersAreNot) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  for (uint64_t number = 1; number <= 3; ++number) {
    ASSERT_OK(WriteTable(tables.context, number, MakeRecords(3)));
  }
  for (const std::string name :
       {"t/0000000000000009.index.tmp", "t/1.index", "t/000000000000000A.index", "t/notes",
        "t/0000000000000001.index.bak", "t/notes.tmp"}) {
    ASSERT_OK(disk->Open(name, {.write = true, .create = true}));
  }
  const std::vector<uint64_t> live{3, 1};
  ASSERT_OK(RemoveTableOrphans(*disk, "t", live));
  const std::vector<std::string> left{"t/0000000000000001.index",
                                      "t/0000000000000001.index.bak",
                                      "t/0000000000000003.index",
                                      "t/000000000000000A.index",
                                      "t/1.index",
                                      "t/notes",
                                      "t/notes.tmp"};
  EXPECT_EQ(disk->Files(), left);
  disk->AddFault({.when = nullptr, .at_index = disk->operations(), .error = EIO});
  EXPECT_FAILS(RemoveTableOrphans(*disk, "t", {}), StatusCode::kIoError, "0001.index");
  EXPECT_FAILS(RemoveTableOrphans(*disk, "nowhere", {}), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cairn::sstable
