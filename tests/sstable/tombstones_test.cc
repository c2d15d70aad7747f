// SPDX-License-Identifier: Apache-2.0
//
// Property: records that are deleted cost nothing for long. A million deletions in the order of
// their keys, as when the children of one node are dropped, leave scans, lookups and disk as if the
// records had never been; and a scan after each deletion costs what one scan costs. Method: counted
// block reads and counted steps, no times.
#include <gtest/gtest.h>

#include "tests/sstable/lsm_fixture.h"

namespace cairn::sstable {
namespace {

// A million records of 7 bytes, as their prefixes are shared, reach the second level.
constexpr MergeShape kShape{.table_bytes = 1 << 20, .level1_bytes = 2 << 20, .level0_tables = 4};

void Maintain(LsmIndex& index, size_t memtable_bytes) {
  if (index.memtable_bytes() < memtable_bytes) return;
  FlushAll(index);
  CompactAll(index);
}

TEST(Tombstones, AMillionDeletedInTheOrderOfTheirKeys) {
  constexpr uint64_t kCount = 1'000'000;
  constexpr size_t kMemtableBytes = 8 << 20;
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index,
                   LsmIndex::Open({.tables = tables.context, .shape = kShape}, {}));
  const auto apply = [&](auto&& each) {
    for (uint64_t i = 0; i < kCount;) {
      WriteBatch batch = index->NewBatch();
      for (uint64_t end = std::min(i + 1000, kCount); i < end; ++i) {
        ASSERT_OK(each(batch, "edge/7/" + KeyOf(i)));
      }
      index->Apply(std::move(batch));
      Maintain(*index, kMemtableBytes);
    }
  };
  Put(*index, "edge/6/", "a neighbour before");
  Put(*index, "edge/8/", "a neighbour behind");
  apply([](WriteBatch& batch, const std::string& key) { return batch.Put(key, "child"); });
  const uint64_t full_bytes = index->stats().bytes[1] + index->stats().bytes[2];
  EXPECT_GT(full_bytes, 6u << 20);
  EXPECT_GE(index->stats().tables[2], 1u);  // Not at the bottom by chance.

  const auto scan = index->NewScan({.end = "edge/8/", .read = {}});
  uint64_t deleted = 0;
  uint64_t most_reads = 0;
  apply([&](WriteBatch& batch, const std::string& key) {
    // Every so often somebody looks for the first edge that is left.
    if (deleted % 10'000 == 0) {
      const uint64_t before = tables.reads();
      scan->Seek("edge/7/");
      EXPECT_TRUE(scan->valid());
      most_reads = std::max(most_reads, tables.reads() - before);
    }
    ++deleted;
    return batch.Delete(key);
  });
  // A partition and a data block of each source, and a step into the next ones.
  EXPECT_LE(most_reads, 24u);

  FlushAll(*index);
  CompactAll(*index);
  const LsmStats stats = index->stats();
  EXPECT_LT(stats.tombstones, kDenseTombstones * (stats.tables[0] + stats.tables[1] + 1));
  EXPECT_LT(stats.records, 3 * kDenseTombstones);
  uint64_t bytes = 0;
  for (const uint64_t level : stats.bytes) bytes += level;
  EXPECT_LT(bytes, full_bytes / 100);

  const uint64_t before = tables.reads();
  EXPECT_TRUE(Walk(*scan, "edge/7/").empty());  // And lets go of the files that it held.
  ASSERT_OK(index->DeleteReleased());
  EXPECT_EQ(tables.files->List("t")->size(), index->live().size());
  EXPECT_EQ(Walk(*index->NewScan()).size(), 2u);
  EXPECT_LE(tables.reads() - before, 8u);
}

// The engine's use when it drops children one by one: delete, and look whether one is left. The
// deletions are in the memtable, the children in tables that no merge has cleaned yet.
TEST(Tombstones, AScanAfterEachDeletionDoesNotStartAtTheFirst) {
  constexpr uint64_t kCount = 20'000;
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t i = 0; i < kCount; ++i) Put(*index, "edge/7/" + KeyOf(i), "child");
  FlushAll(*index);
  CompactAll(*index);
  const auto scan = index->NewScan({.end = "edge/8/", .read = {}});
  scan->Seek("edge/7/");
  const uint64_t hits_before = tables.counters->cache_hits.load();
  const uint64_t reads_before = tables.reads();
  for (uint64_t i = 0; i < kCount; ++i) {
    Delete(*index, "edge/7/" + KeyOf(i));
    scan->Seek("edge/7/");
    ASSERT_EQ(scan->valid(), i + 1 < kCount);
    if (scan->valid()) {
      ASSERT_EQ(scan->key(), "edge/7/" + KeyOf(i + 1));
    }
  }
  // Without the notes each seek would walk all blocks of the deleted records: hundreds at the end,
  // half of that on average. With them it enters the one or two where the first is that is left.
  const uint64_t blocks =
      tables.counters->cache_hits.load() - hits_before + tables.reads() - reads_before;
  EXPECT_LE(blocks, kCount * 5);
}

TEST(Tombstones, APutBehindTheNotesIsFound) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  for (uint64_t i = 0; i < 1000; ++i) Put(*index, KeyOf(i), "v");
  for (uint64_t i = 0; i < 1000; ++i) Delete(*index, KeyOf(i));
  const auto scan = index->NewScan();
  scan->Seek("");
  EXPECT_FALSE(scan->valid());
  for (const uint64_t i : {999, 500, 3, 0}) {
    Put(*index, KeyOf(i), "again");
    scan->Seek("");
    ASSERT_TRUE(scan->valid());
    EXPECT_EQ(scan->key(), KeyOf(i));
    scan->Seek(KeyOf(i));
    ASSERT_TRUE(scan->valid());
  }
  EXPECT_EQ(Walk(*scan).size(), 4u);
}

TEST(Tombstones, ADenseTableAtTheBottomIsRewritten) {
  // Tombstones that came to rest above data which later went away.
  TestTables tables = TestTables::InMemory();
  Records records = MakeRecords(1000);
  for (uint64_t i = 0; i < 1000; i += 2) records[KeyOf(i * 2)] = std::nullopt;
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  tables.callbacks->next_number = 2;
  const LiveTable live{1, 3, info.bytes};
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {&live, 1}));
  ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
  ASSERT_TRUE(edit);
  ASSERT_EQ(edit->added.size(), 1u);
  EXPECT_EQ(edit->added[0].level, 3u);
  EXPECT_EQ(index->stats().tombstones, 0u);
  EXPECT_EQ(Walk(*index->NewScan()), LiveOf(records));
}

}  // namespace
}  // namespace cairn::sstable
