// SPDX-License-Identifier: Apache-2.0
//
// Property: whichever part of a table is on its way when a write fails, the error names the file,
// nothing is left of it, its space is given back, and the next try makes the table that it would
// have been. A look or read that fails costs the one call that needed it.
// Method: tables whose sizes put the end of the write buffer into every part in turn, and that part
// is read off the finished file; each write fails once, and the callbacks refuse each once.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "base/core/align.h"
#include "sstable/snapshot_table.h"
#include "sstable/snapshot_writer.h"
#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

io::SimFault FailingWrite(uint64_t offset) {
  return {.when =
              [offset](const io::SimOperation& operation) {
                return operation.op == io::SimOp::kWrite && operation.offset == offset;
              },
          .error = EIO};
}

io::SimFault Failing(io::SimOp op, const std::string& path) {
  return {.when = [op, path](const io::SimOperation& o) { return o.op == op && o.path == path; },
          .error = EIO};
}

// Keys that share nothing and that no shorter ones separate: one makes a block, and fifteen blocks
// a partition. The first block is longer by so much.
Records LongKeys(size_t longer) {
  Records records;
  for (char c = 'A'; c < 'A' + 20; ++c) {
    const std::string key = c + std::string(kMaxKeyBytes - 1, 'k');
    records[key] = ValueOf(static_cast<uint64_t>(c), 9000 + (c == 'A' ? longer : 0));
  }
  return records;
}

// The part of an index table that holds the byte at `at`: "data", "last data", "partition", ...
std::string PartOfIndex(std::span<const std::byte> file, uint64_t at) {
  const uint64_t footer_at = file.size() - kTableAlignment;
  if (at >= footer_at) return "footer";
  uint16_t kind = 0;
  std::set<uint16_t> behind;  // The kinds of the blocks behind that one.
  for (uint64_t offset = 0; offset < footer_at;) {
    const auto header = LoadAs<BlockHeader>(file.data() + offset);
    if (offset <= at) {
      kind = header.kind;
    } else {
      behind.insert(header.kind);
    }
    offset += AlignUp(header.bytes, kTableAlignment);
  }
  const char* const names[] = {"?", "data", "partition", "root"};
  return (behind.contains(kind) ? "" : "last ") + std::string(names[kind]);
}

TEST(IndexWriter, EveryPartOfATableMeetsAWriteThatFails) {
  std::set<std::string> parts;
  constexpr uint64_t kUnits = kTableWriteBytes / kTableAlignment;
  for (uint64_t unit = 0; unit < kUnits; ++unit) {
    SCOPED_TRACE(unit);
    const Records records = LongKeys(unit * kTableAlignment);
    auto disk = std::make_shared<io::SimDisk>();
    TestTables tables = TestTables::OnDisk(disk);
    const std::string path = tables.Path(1);
    ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
    ASSERT_OK_ASSIGN(const auto file, disk->ReadRaw(path));
    ASSERT_OK(disk->Remove(path));
    tables.callbacks->taken = 0;
    for (uint64_t end = kTableWriteBytes; end < info.bytes; end += kTableWriteBytes) {
      parts.insert(PartOfIndex(file, end));
      for (const bool refused : {false, true}) {
        if (refused) {
          tables.callbacks->capacity = end - 1;
        } else {
          disk->AddFault(FailingWrite(end - kTableWriteBytes));
        }
        const auto failed = WriteTable(tables.context, 1, records);
        EXPECT_FAILS(failed, refused ? StatusCode::kNoSpace : StatusCode::kIoError,
                     refused ? "cap" : path + ".tmp");
        EXPECT_TRUE(disk->Files().empty());
        EXPECT_EQ(tables.callbacks->taken, 0u);
        tables.callbacks->capacity = UINT64_MAX;
      }
    }
    ASSERT_OK_ASSIGN(const TableInfo again, WriteTable(tables.context, 1, records));
    EXPECT_EQ(again, info);
    EXPECT_TRUE(*disk->ReadRaw(path) == file);
    EXPECT_EQ(tables.callbacks->taken, info.bytes);
  }
  EXPECT_EQ(parts, (std::set<std::string>{"data", "last data", "partition", "last partition",
                                          "last root", "footer"}));
}

// Three fragments of six frames each. A caller who does not look at what AddFrame returns gets the
// first error from everything that follows.
Result<SnapshotInfo> WriteSnapshot(const TableContext& context, size_t frame_bytes) {
  CAIRN_ASSIGN_OR_RETURN(
      const auto writer,
      SnapshotWriter::Create(context, SnapshotKind::kPages, 1, /*write_bytes=*/kTableAlignment));
  constexpr uint32_t kSlices = 6;
  const std::string frame = ValueOf(frame_bytes, frame_bytes);
  Status first;
  for (uint64_t node = 1; node <= 3; ++node) {
    writer->BeginFragment({.node = node, .count = 1, .page_rows = 1, .slices = kSlices});
    for (uint32_t i = 0; i < kSlices; ++i) {
      const Status added = writer->AddFrame(std::as_bytes(std::span(frame)), 1);
      if (first.ok()) first = added;
      EXPECT_EQ(added.ToString(), first.ToString());
    }
  }
  auto finished = writer->Finish();
  if (!first.ok()) {
    EXPECT_EQ(finished.status().ToString(), first.ToString());
  }
  return finished;
}

// The part of a snapshot table that holds the byte at `at`, or whose padding does.
std::string PartOfSnapshot(std::span<const FragmentEntry> fragments, uint64_t bytes, uint64_t at) {
  if (at >= bytes - kTableAlignment) return "footer";
  for (const FragmentEntry& fragment : fragments) {
    if (at < fragment.entries_offset) return "frame";
    if (at < AlignUp(fragment.offset + fragment.bytes(), kFrameAlignment)) return "entries";
  }
  return "fragments";
}

TEST(SnapshotWriter, EveryPartOfATableMeetsAWriteThatFails) {
  std::set<std::string> parts;
  for (size_t frame_bytes = 60; frame_bytes < kTableAlignment; frame_bytes += kFrameAlignment) {
    SCOPED_TRACE(frame_bytes);
    auto disk = std::make_shared<io::SimDisk>();
    TestTables tables = TestTables::OnDisk(disk);
    const std::string path = SnapshotTablePath("t", 1);
    ASSERT_OK_ASSIGN(const SnapshotInfo info, WriteSnapshot(tables.context, frame_bytes));
    ASSERT_OK_ASSIGN(const auto file, disk->ReadRaw(path));
    ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(tables.context, 1));
    ASSERT_OK_ASSIGN(const auto fragments, table->Fragments());
    ASSERT_OK(disk->Remove(path));
    tables.callbacks->taken = 0;
    for (uint64_t end = kTableAlignment; end <= info.bytes; end += kTableAlignment) {
      if (end < info.bytes) parts.insert(PartOfSnapshot(fragments, info.bytes, end));
      for (const bool refused : {false, true}) {
        if (refused) {
          tables.callbacks->capacity = end - 1;
        } else {
          disk->AddFault(FailingWrite(end - kTableAlignment));
        }
        EXPECT_FAILS(WriteSnapshot(tables.context, frame_bytes),
                     refused ? StatusCode::kNoSpace : StatusCode::kIoError,
                     refused ? "cap" : path + ".tmp");
        EXPECT_TRUE(disk->Files().empty());
        EXPECT_EQ(tables.callbacks->taken, 0u);
        tables.callbacks->capacity = UINT64_MAX;
      }
    }
    ASSERT_OK_ASSIGN(const SnapshotInfo again, WriteSnapshot(tables.context, frame_bytes));
    EXPECT_EQ(again, info);
    EXPECT_TRUE(*disk->ReadRaw(path) == file);
    EXPECT_EQ(tables.callbacks->taken, info.bytes);
  }
  EXPECT_EQ(parts, (std::set<std::string>{"frame", "entries", "fragments", "footer"}));
}

TEST(TableErrors, ATableWhoseSizeIsNotToldIsNotOpened) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK(WriteTable(tables.context, 2, MakeRecords(10)));
  disk->AddFault(Failing(io::SimOp::kStat, tables.Path(2)));
  EXPECT_FAILS(IndexTable::Open(tables.context, 2), StatusCode::kIoError, tables.Path(2));
  ASSERT_OK_ASSIGN(const auto index, IndexTable::Open(tables.context, 2));
  EXPECT_OK(index->Verify());

  ASSERT_OK(WriteSnapshot(tables.context, 100));
  const std::string path = SnapshotTablePath("t", 1);
  disk->AddFault(Failing(io::SimOp::kStat, path));
  EXPECT_FAILS(SnapshotTable::Open(tables.context, 1), StatusCode::kIoError, path);
  ASSERT_OK_ASSIGN(const auto snapshot, SnapshotTable::Open(tables.context, 1));
  EXPECT_OK(snapshot->VerifyAll());
}

// A list that is longer than what Open reads is read when it is needed, and again when that failed.
TEST(TableErrors, TheListOfFragmentsThatCannotBeReadIsReadTheNextTime) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  constexpr uint64_t kFragments = kOpenReadBytes / sizeof(FragmentEntry);
  {
    ASSERT_OK_ASSIGN(const auto writer,
                     SnapshotWriter::Create(tables.context, SnapshotKind::kPages, 1));
    const std::byte frame[1] = {};
    for (uint64_t node = 1; node <= kFragments; ++node) {
      writer->BeginFragment({.node = node, .count = 1, .page_rows = 1, .slices = 1});
      ASSERT_OK(writer->AddFrame(frame, 1));
    }
    ASSERT_OK(writer->Finish());
  }
  ASSERT_OK_ASSIGN(const auto table, SnapshotTable::Open(tables.context, 1));
  const std::string path = SnapshotTablePath("t", 1);
  disk->AddFault(Failing(io::SimOp::kRead, path));
  EXPECT_FAILS(table->Fragments(), StatusCode::kIoError, path);
  disk->AddFault(Failing(io::SimOp::kRead, path));
  EXPECT_FAILS(table->Find(7, 0, 0), StatusCode::kIoError, path);
  EXPECT_EQ(disk->faults_struck(), 2u);
  ASSERT_OK_ASSIGN(const auto found, table->Find(7, 0, 0));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->node, 7u);
  ASSERT_OK_ASSIGN(const auto fragments, table->Fragments());
  EXPECT_EQ(fragments.size(), kFragments);
}

}  // namespace
}  // namespace cairn::sstable
