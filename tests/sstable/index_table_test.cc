// SPDX-License-Identifier: Apache-2.0
//
// Property: a table gives back what was written, from every side and at every size; opening it
// reads its end alone; and no damage to any byte of it is ever taken for data.
#include "sstable/index_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

void ExpectHolds(const IndexTable& table, const Records& records) {
  EXPECT_OK(table.Verify());
  EXPECT_EQ(Walk(*table.NewIterator({})), ListOf(records));
  EXPECT_EQ(Walk(*table.NewMergeIterator()), ListOf(records));
  const auto scan = table.NewIterator({});
  const size_t step = std::max<size_t>(1, records.size() / 500);
  size_t i = 0;
  for (auto at = records.begin(); at != records.end(); ++at) {
    if (i++ % step != 0) continue;
    const auto& [key, value] = *at;
    ASSERT_OK_ASSIGN(const auto found, table.Get(key, {}));
    ASSERT_TRUE(found) << key;
    EXPECT_EQ(found->tombstone, !value);
    EXPECT_EQ(found->value, value.value_or(""));
    const std::string behind = key + '\0';
    ASSERT_OK_ASSIGN(const auto absent, table.Get(behind, {}));
    EXPECT_FALSE(absent && !records.contains(behind));
    scan->Seek(behind);
    const auto next = records.lower_bound(behind);
    ASSERT_EQ(scan->valid(), next != records.end()) << scan->status().ToString();
    if (scan->valid()) {
      EXPECT_EQ(scan->key(), next->first);
    }
  }
}

TEST(IndexTable, HoldsWhatWasWrittenAtEverySize) {
  TestTables tables = TestTables::InMemory();
  uint64_t number = 1;
  for (const uint64_t count : {1, 2, 16, 17, 500, 1000, 30'000}) {
    const Records records = MakeRecords(count, 20, 7);
    ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, ++number, records));
    ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, number));
    EXPECT_EQ(table->info(), info);
    EXPECT_EQ(info.records, count);
    EXPECT_EQ(info.tombstones, (count + 6) / 7);
    EXPECT_EQ(info.smallest, records.begin()->first);
    EXPECT_EQ(info.largest, records.rbegin()->first);
    EXPECT_EQ(tables.files->Info(tables.Path(number))->bytes, info.bytes);
    ExpectHolds(*table, records);
    EXPECT_FAILS(tables.files->Info(tables.Path(number) + ".tmp"), StatusCode::kNotFound);
  }
}

TEST(IndexTable, ManyPartitions) {
  TestTables tables = TestTables::InMemory();
  const Records records = MakeRecords(100'000, 30, 0);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  EXPECT_GT(info.partitions, 5u);
  EXPECT_GT(info.data_blocks, info.partitions * 20);
  // 41 bytes per record in a fixed memory: what a resident table costs.
  EXPECT_LT(table->memory_bytes(), 8u << 10);
  // Index, filters and padding cost less than a tenth of what prefixes save.
  EXPECT_LT(info.bytes, (info.key_bytes + info.value_bytes) * 102 / 100);
  ExpectHolds(*table, records);
}

TEST(IndexTable, RecordsOfEveryShape) {
  TestTables tables = TestTables::InMemory();
  Records records;
  records[""] = "the empty key";
  records[std::string("\0", 1)] = std::nullopt;
  records[std::string(kMaxKeyBytes, 'a')] = ValueOf(1, kMaxValueBytes);
  records[std::string(kMaxKeyBytes, 'b')] = std::nullopt;
  for (uint64_t i = 0; i < 50; ++i) records[std::string(i * 20, 'c')] = ValueOf(i, i * 1000);
  records["d"] = ValueOf(2, kIndexBlockBytes);
  records["e"] = ValueOf(3, kMaxValueBytes);
  records["e1"] = "";
  records[std::string(kMaxKeyBytes, '\xff')] = "last";
  ASSERT_OK(WriteTable(tables.context, 1, records));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  ExpectHolds(*table, records);
}

TEST(IndexTable, KeysOutsideCostNoRead) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK(WriteTable(tables.context, 1, MakeRecords(1000)));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  const uint64_t before = tables.reads();
  for (const std::string key : {"", "a", "kez", "zzz"}) {
    ASSERT_OK_ASSIGN(const auto found, table->Get(key, {}));
    EXPECT_FALSE(found);
  }
  EXPECT_EQ(tables.reads(), before);
}

TEST(IndexTable, OpenReadsTheEndAlone) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, MakeRecords(100'000)));
  ASSERT_GT(info.bytes, 20 * kOpenReadBytes);
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  EXPECT_EQ(tables.reads(), 1u);
  EXPECT_EQ(tables.counters->read_bytes.load(), kOpenReadBytes);
  // A first lookup reads a partition and a data block; its neighbours nothing.
  ASSERT_OK(table->Get(KeyOf(5000), {}));
  EXPECT_EQ(tables.reads(), 3u);
  ASSERT_OK(table->Get(KeyOf(5002), {}));
  EXPECT_EQ(tables.reads(), 3u);
  EXPECT_EQ(tables.counters->cache_hits.load(), 2u);
}

TEST(IndexTable, TheFilterSparesDataBlocks) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK(WriteTable(tables.context, 1, MakeRecords(20'000)));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  const uint64_t asked = 10'000;
  for (uint64_t i = 0; i < asked; ++i) ASSERT_OK(table->Get(KeyOf(2 * i + 1), {}));  // All absent.
  const uint64_t skips = tables.counters->filter_skips.load();
  EXPECT_GT(skips, asked * 98 / 100);
  EXPECT_LT(skips, asked);
}

TEST(IndexTable, MemoryOnlyNeverReads) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK(WriteTable(tables.context, 1, MakeRecords(5000)));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  const ReadOptions memory_only{.memory_only = true};
  const uint64_t before = tables.reads();
  EXPECT_FAILS(table->Get(KeyOf(10), memory_only), StatusCode::kBusy, "not in memory");
  const auto scan = table->NewIterator(memory_only);
  scan->Seek(KeyOf(10));
  EXPECT_FALSE(scan->valid());
  EXPECT_FAILS(scan->status(), StatusCode::kBusy);
  EXPECT_EQ(tables.reads(), before);
  ASSERT_OK(table->Get(KeyOf(10), {}));
  ASSERT_OK_ASSIGN(const auto found, table->Get(KeyOf(10), memory_only));
  EXPECT_TRUE(found);
  scan->Seek(KeyOf(10));
  EXPECT_TRUE(scan->valid());
}

TEST(IndexTable, MergesReadAheadAndLeaveTheCacheAlone) {
  TestTables tables = TestTables::InMemory();
  const Records records = MakeRecords(50'000, 40);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  const uint64_t before = tables.reads();
  EXPECT_EQ(Walk(*table->NewMergeIterator()).size(), records.size());
  EXPECT_LE(tables.reads() - before, info.bytes / kReadAheadBytes + 2 + 2 * info.partitions);
  EXPECT_LE(tables.cache->bytes(), info.partitions * (kIndexBlockBytes + kCacheEntryBytes));
}

TEST(IndexTable, ManyThreadsReadOneTable) {
  TestTables tables = TestTables::InMemory();
  const Records records = MakeRecords(20'000);
  ASSERT_OK(WriteTable(tables.context, 1, records));
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto scan = table->NewIterator({});
      for (uint64_t i = 0; i < 2000; ++i) {
        const std::string key = KeyOf((i * 37 + t * 11) % 20'000 * 2);
        const auto found = table->Get(key, {});
        ASSERT_TRUE(found.ok() && *found && (*found)->value == records.at(key));
        if (i % 50 == 0) {
          scan->Seek(key);
          ASSERT_TRUE(scan->valid() && scan->key() == key);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(IndexTable, NoMemoryIsAnError) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK(WriteTable(tables.context, 1, MakeRecords(2000)));
  TestAllocator memory;
  tables.context.allocator = memory.allocator();
  for (memory.refuse_at = 0; memory.refuse_at < 2; ++memory.refuse_at) {
    memory.allocations = 0;
    EXPECT_FAILS(IndexTable::Open(tables.context, 1), StatusCode::kOutOfMemory, "0001.index");
  }
  memory.refuse_at = UINT64_MAX;
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  for (uint64_t more = 0; more < 2; ++more) {
    memory.refuse_at = memory.allocations + more;
    EXPECT_FAILS(table->Get(KeyOf(0), {}), StatusCode::kOutOfMemory, "0001.index");
  }
  memory.refuse_at = memory.allocations;
  const auto merge = table->NewMergeIterator();
  merge->Seek("");
  EXPECT_FAILS(merge->status(), StatusCode::kOutOfMemory);
  memory.refuse_at = UINT64_MAX;
  merge->Seek("");  // It tries again.
  EXPECT_TRUE(merge->valid());
  memory.refuse_at = memory.allocations;
  EXPECT_FAILS(IndexWriter::Create(tables.context, 2), StatusCode::kOutOfMemory, "0002.index.tmp");
}

TEST(IndexTable, AReadErrorNamesTheFile) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  ASSERT_OK(WriteTable(tables.context, 1, MakeRecords(2000)));
  const auto fail_reads = [&] {
    disk->AddFault(
        {.when = [](const io::SimOperation& o) { return o.op == io::SimOp::kRead; }, .error = EIO});
  };
  fail_reads();
  EXPECT_FAILS(IndexTable::Open(tables.context, 1), StatusCode::kIoError, "0001.index");
  ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, 1));
  fail_reads();
  EXPECT_FAILS(table->Get(KeyOf(0), {}), StatusCode::kIoError, "0001.index");
  const auto scan = table->NewIterator({});
  fail_reads();
  scan->Seek("");
  EXPECT_FAILS(scan->status(), StatusCode::kIoError, "0001.index");
  scan->Seek("");
  EXPECT_TRUE(scan->valid());
  fail_reads();
  EXPECT_FAILS(table->Verify(), StatusCode::kIoError);
  EXPECT_FAILS(IndexTable::Open(tables.context, 2), StatusCode::kNotFound, "0002.index");
}

// --- Damage ---

// Everything that can be asked of a table. `right` collects what came back right.
struct Verdict {
  bool opened = false;
  bool verified = false;
  uint64_t answers = 0;
};

void ExpectCorruption(const Status& status) {
  EXPECT_FAILS(status, StatusCode::kCorruption, "t/0000000000000001.index: offset ");
}

// Never wrong: each answer is the one of `records`, or kCorruption that names file and offset.
Verdict Ask(const TestTables& undamaged, const Records& records) {
  Verdict verdict;
  TestTables tables(undamaged.files);  // With an empty cache.
  const auto table = IndexTable::Open(tables.context, 1);
  if (!table.ok()) {
    ExpectCorruption(table.status());
    return verdict;
  }
  verdict.opened = true;
  for (const auto& [key, value] : records) {
    const auto found = (*table)->Get(key, {});
    if (!found.ok()) {
      ExpectCorruption(found.status());
      continue;
    }
    ++verdict.answers;
    if (!*found || (*found)->tombstone != !value || (*found)->value != value.value_or("")) {
      ADD_FAILURE() << "a wrong answer for " << key;
    }
  }
  for (auto& scan : {(*table)->NewIterator({}), (*table)->NewMergeIterator()}) {
    const RecordList list = Walk(*scan);
    const RecordList expected = ListOf(records);
    EXPECT_TRUE(list.size() <= expected.size() &&
                std::equal(list.begin(), list.end(), expected.begin()))
        << "a scan gave wrong records";
    if (list.size() < expected.size()) ExpectCorruption(scan->status());
  }
  const Status verified = (*table)->Verify();
  verdict.verified = verified.ok();
  if (!verified.ok()) ExpectCorruption(verified);
  return verdict;
}

TEST(IndexTableDamage, EveryByteFlipped) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records = MakeRecords(12, 6, 4);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  ASSERT_EQ(info.bytes, 4 * kTableAlignment);  // Data, partition, root, footer.
  ASSERT_TRUE(Ask(tables, records).verified);
  uint64_t unopened = 0;
  for (uint64_t at = 0; at < info.bytes && !HasFailure(); ++at) {
    const auto bit = static_cast<unsigned>(at % 8);
    ASSERT_OK(disk->FlipBit(tables.Path(1), at, bit));
    const Verdict verdict = Ask(tables, records);
    // Root and footer are read by Open. Every byte of the file is under some hash.
    EXPECT_EQ(verdict.opened, at < 2 * kTableAlignment) << "byte " << at;
    EXPECT_FALSE(verdict.verified) << "byte " << at;
    EXPECT_EQ(verdict.answers, 0u) << "byte " << at;
    unopened += verdict.opened ? 0 : 1;
    ASSERT_OK(disk->FlipBit(tables.Path(1), at, bit));
  }
  EXPECT_EQ(unopened, 2 * kTableAlignment);
}

TEST(IndexTableDamage, CostsTheRecordsOfItsBlockOnly) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records = MakeRecords(3000, 30);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  ASSERT_GT(info.data_blocks, 5u);
  ASSERT_EQ(info.partitions, 1u);
  for (uint64_t block = 0; block < info.data_blocks; ++block) {
    const uint64_t at = block * kIndexBlockBytes + 100;
    ASSERT_OK(disk->FlipBit(tables.Path(1), at, 3));
    const Verdict verdict = Ask(tables, records);
    EXPECT_TRUE(verdict.opened);
    EXPECT_GE(verdict.answers, records.size() * (info.data_blocks - 2) / info.data_blocks);
    EXPECT_LT(verdict.answers, records.size());
    ASSERT_OK(disk->FlipBit(tables.Path(1), at, 3));
  }
}

TEST(IndexTableDamage, EveryLengthOfABlockAndSomeBetween) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records = MakeRecords(12, 6, 4);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  const auto bytes = *disk->ReadRaw(tables.Path(1));
  for (uint64_t length = 0; length < info.bytes; length += length % 512 == 0 ? 1 : 511) {
    ASSERT_OK(disk->TruncateRaw(tables.Path(1), length));
    EXPECT_FALSE(Ask(tables, records).opened) << length;
    ASSERT_OK(disk->WriteRaw(tables.Path(1), 0, bytes));
  }
  // Longer than it was, too.
  ASSERT_OK(disk->TruncateRaw(tables.Path(1), info.bytes + kTableAlignment));
  EXPECT_FALSE(Ask(tables, records).opened);
}

TEST(IndexTableDamage, RightBytesInTheWrongPlace) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records = MakeRecords(3000, 30);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, records));
  const auto bytes = *disk->ReadRaw(tables.Path(1));
  // Two data blocks exchanged.
  const auto first = std::span(bytes).first(kIndexBlockBytes);
  const auto second = std::span(bytes).subspan(kIndexBlockBytes, kIndexBlockBytes);
  ASSERT_OK(disk->WriteRaw(tables.Path(1), 0, second));
  ASSERT_OK(disk->WriteRaw(tables.Path(1), kIndexBlockBytes, first));
  const Verdict verdict = Ask(tables, records);
  EXPECT_TRUE(verdict.opened);
  EXPECT_FALSE(verdict.verified);
  ASSERT_OK(disk->WriteRaw(tables.Path(1), 0, bytes));
  // The file of another number, and of another store.
  ASSERT_OK(disk->Rename(tables.Path(1), tables.Path(2)));
  EXPECT_FAILS(IndexTable::Open(tables.context, 2), StatusCode::kCorruption,
               "t/0000000000000002.index: offset " + std::to_string(info.bytes - kTableAlignment));
  ASSERT_OK(disk->Rename(tables.Path(2), tables.Path(1)));
  tables.context.store.bytes[5] ^= 1;
  EXPECT_FAILS(IndexTable::Open(tables.context, 1), StatusCode::kCorruption, "hash");
}

TEST(IndexTableDamage, ABlockOfAnotherTableOfTheSameNumberIsRefusedByTheStore) {
  // The same number and offset in another store: only the store id distinguishes them.
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  const Records records = MakeRecords(12, 6, 4);
  TestTables others = TestTables::OnDisk(disk);
  others.context.store.bytes[0] ^= 1;
  ASSERT_OK(WriteTable(others.context, 2, records));
  const auto foreign = *disk->ReadRaw(tables.Path(2));
  ASSERT_OK(WriteTable(tables.context, 1, records));
  ASSERT_OK(disk->WriteRaw(tables.Path(1), 0, std::span(foreign).first(kTableAlignment)));
  EXPECT_FALSE(Ask(tables, records).verified);
}

}  // namespace
}  // namespace cairn::sstable
