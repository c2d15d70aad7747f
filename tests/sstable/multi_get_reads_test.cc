// SPDX-License-Identifier: Apache-2.0
//
// Property: what a MultiGet needs of the device is in flight together, within bounds, in two trips
// or a few; each block is read once; what is in memory is not read at all.
// Method: a file system that counts.
#include <gtest/gtest.h>

#include <random>

#include "tests/sstable/multi_get_fixture.h"

namespace cairn::sstable {
namespace {

class Counted {
 public:
  Counted() {
    const std::vector<LiveTable> live = MakeSeveralLevels(tables_, &model_);
    LsmOptions options = OptionsOf(tables_);
    options.tables.files = files_.get();
    options.tables.cache = &cache_;
    auto opened = LsmIndex::Open(options, live);
    CAIRN_CHECK(opened.ok());
    index_ = std::move(*opened);
    reads_before_ = tables_.reads();
  }
  uint64_t reads() const { return tables_.reads() - reads_before_; }

  TestTables tables_ = TestTables::InMemory();
  const std::shared_ptr<CountingFiles> files_ = std::make_shared<CountingFiles>(tables_.files);
  Records model_;
  BlockCache cache_{4 << 20};
  std::unique_ptr<LsmIndex> index_;
  uint64_t reads_before_ = 0;
};

TEST(MultiGetReads, TwoTripsAndNothingTwice) {
  Counted store;
  // Those that are in the tables, tombstones too. Filters let some pass that are further down.
  std::vector<std::string> keys;
  for (const auto& [key, value] : store.model_) keys.push_back(key);
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
  uint64_t partitions = 0;
  for (const LiveTable& table : store.index_->live()) {
    ASSERT_OK_ASSIGN(const auto opened, IndexTable::Open(store.tables_.context, table.number));
    partitions += opened->info().partitions;
  }
  ASSERT_OK_ASSIGN(const auto other,
                   LsmIndex::Open(OptionsOf(store.tables_), store.index_->live()));
  const uint64_t before = store.tables_.reads();
  EXPECT_EQ(ByGets(*other, keys), ByModel(store.model_, keys));
  const uint64_t needed = store.tables_.reads() - before;

  store.reads_before_ = store.tables_.reads();
  EXPECT_EQ(ByMultiGet(*store.index_, keys), ByModel(store.model_, keys));
  const CountingFiles& files = *store.files_;
  EXPECT_EQ(files.reads, needed);
  EXPECT_EQ(store.reads(), needed);
  EXPECT_EQ(files.rounds, 2u);
  EXPECT_EQ(files.in_flight_max, needed - partitions);
  EXPECT_LT(files.in_flight_max, kLookupReads);
  EXPECT_EQ(files.queues, 1u);

  EXPECT_EQ(ByMultiGet(*store.index_, keys), ByModel(store.model_, keys));
  EXPECT_EQ(store.reads(), needed);
  EXPECT_EQ(files.queues, 1u);
}

// Whatever filters say: every second of these was never there.
TEST(MultiGetReads, AScanFindsInMemoryWhatWasReadAhead) {
  Counted store;
  const std::vector<std::string> keys = AllKeys();
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  store.index_->ReadAhead(views);
  EXPECT_EQ(store.files_->rounds, 2u);
  const uint64_t reads = store.reads();
  EXPECT_GT(reads, 10u);
  const auto scan = store.index_->NewScan({.end = {}, .read = {.memory_only = true}});
  for (const std::string& key : keys) {
    scan->Seek(key);
    ASSERT_OK(scan->status());
    const auto next = std::find_if(store.model_.lower_bound(key), store.model_.end(),
                                   [](const auto& record) { return record.second.has_value(); });
    ASSERT_EQ(next != store.model_.end(), scan->valid()) << key;
    EXPECT_TRUE(!scan->valid() || next->first == scan->key());
  }
  EXPECT_EQ(store.reads(), reads);
  store.index_->ReadAhead(views);
  EXPECT_EQ(store.reads(), reads) << "it is there already";
}

TEST(MultiGetReads, ManyBlocksAreBounded) {
  TestTables tables = TestTables::InMemory();
  const auto files = std::make_shared<CountingFiles>(tables.files);
  LsmOptions options = OptionsOf(tables);
  options.shape.table_bytes = 64 << 20;
  options.tables.files = files.get();
  Records model;
  std::vector<std::string> keys;
  const auto add = [&](uint64_t i, size_t bytes) {
    keys.push_back(KeyOf(i));
    model[keys.back()] = ValueOf(i, bytes);
  };
  for (uint64_t i = 0; i < 300; ++i) add(i, kIndexBlockBytes - 100);  // A block each.
  for (uint64_t i = 300; i < 306; ++i) add(i, kMaxValueBytes);        // Large ones.
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, model));
  const LiveTable table{.number = 1, .level = 1, .bytes = info.bytes};
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, std::vector{table}));
  const std::vector<std::string> usual(keys.begin(), keys.begin() + 300);
  EXPECT_EQ(ByMultiGet(*index, usual), ByModel(model, usual));
  EXPECT_EQ(files->in_flight_max, kLookupReads);
  EXPECT_LE(files->bytes_max, kLookupReadBytes);
  const std::vector<std::string> large(keys.begin() + 300, keys.end());
  EXPECT_EQ(ByMultiGet(*index, large), ByModel(model, large));
  EXPECT_GT(files->bytes_max, kLookupReadBytes);  // One of these alone.
  EXPECT_LE(files->bytes_max, kMaxBlockBytes);
}

TEST(MultiGetReads, NoQueueForOneBlock) {
  TestTables tables = TestTables::InMemory();
  const auto files = std::make_shared<CountingFiles>(tables.files);
  const Records model = MakeRecords(10);
  ASSERT_OK_ASSIGN(const TableInfo info, WriteTable(tables.context, 1, model));
  LsmOptions options = OptionsOf(tables);
  options.tables.files = files.get();
  const LiveTable table{.number = 1, .level = 1, .bytes = info.bytes};
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, std::vector{table}));
  const uint64_t opening = tables.reads();
  std::vector<std::string> keys = {"a", "zzz"};  // Outside of the table.
  EXPECT_EQ(ByMultiGet(*index, keys), ByModel(model, keys));
  EXPECT_EQ(tables.reads(), opening);
  for (const auto& [key, value] : model) keys.push_back(key);
  EXPECT_EQ(ByMultiGet(*index, keys), ByModel(model, keys));
  EXPECT_EQ(tables.reads(), opening + 2);  // The partition, then the data.
  EXPECT_EQ(files->queues, 0u);
}

TEST(MultiGetReads, MemoryOnlyReadsNothing) {
  Counted store;
  const std::vector<std::string> keys = AllKeys();
  const ReadOptions in_memory{.memory_only = true};
  const std::vector<std::string> cold = ByMultiGet(*store.index_, keys, in_memory);
  EXPECT_EQ(cold, ByGets(*store.index_, keys, in_memory));
  EXPECT_EQ(store.reads(), 0u);
  EXPECT_EQ(cold[0], "absent");  // Before the first key of every table.
  EXPECT_TRUE(cold[2].starts_with("Busy: t/")) << cold[2];
  EXPECT_EQ(ByMultiGet(*store.index_, keys), ByModel(store.model_, keys));
  const uint64_t reads = store.reads();
  EXPECT_EQ(ByMultiGet(*store.index_, keys, in_memory), ByModel(store.model_, keys));
  EXPECT_EQ(store.reads(), reads);
}

}  // namespace
}  // namespace cairn::sstable
