// SPDX-License-Identifier: Apache-2.0
//
// Property: an index table whose checksums are right and whose contents cannot be is reported by
// file and offset by all that meets it: lookups of one key and of many, walks, merges and Verify.
// Method: tables built block by block, as no writer of ours would.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "base/io/file_util.h"
#include "sstable/bloom.h"
#include "sstable/index_block.h"
#include "sstable/merge_job.h"
#include "tests/sstable/multi_get_fixture.h"

namespace cairn::sstable {
namespace {

// A change of a block before it gets its hash.
using Change = std::function<void(std::string& block)>;

// REQUIRES: the block has no filter.
Change MoveLastRestart(uint32_t by) {
  return [by](std::string& block) {
    char* const last = block.data() + LoadAs<BlockHeader>(block.data()).bytes - sizeof(uint32_t);
    const uint32_t restart = LoadAs<uint32_t>(last) + by;
    std::memcpy(last, &restart, sizeof(restart));
  };
}

// Blocks as they are given, each with its hash.
class RawTable {
 public:
  BlockHandle Add(BlockKind kind, const RecordList& entries,
                  const std::vector<std::string>& filtered = {}, const Change& change = nullptr) {
    BlockBuilder builder;
    for (const auto& [key, value] : entries) {
      builder.Add(key, value ? MaybeValue(*value) : std::nullopt);
    }
    std::vector<uint64_t> hashes;
    for (const std::string& key : filtered) hashes.push_back(FilterHash(key));
    std::string block = builder.Finish(kind, hashes.empty() ? "" : BuildFilter(hashes));
    if (change) change(block);
    const BlockHandle handle{bytes_.size(), static_cast<uint32_t>(block.size())};
    SealBlock(block, kTestStore, kNumber, handle.offset);
    bytes_ += block;
    return handle;
  }
  // With a root of these entries and a footer that says this.
  void Write(const TestTables& tables, const RecordList& root, TableInfo info,
             const Change& change = nullptr) {
    const BlockHandle handle = Add(BlockKind::kRoot, root, {}, change);
    info.number = kNumber;
    info.bytes = bytes_.size() + kTableAlignment;
    bytes_ += EncodeFooter(kTestStore, info, handle);
    ASSERT_OK(io::WriteFileDurably(*tables.files, tables.Path(kNumber),
                                   std::as_bytes(std::span(bytes_))));
  }

  static constexpr uint64_t kNumber = 1;

 private:
  std::string bytes_;
};

// The table of four records "a" to "d" of one byte each, in two blocks and one partition.
TableInfo FourRecords() {
  return {.records = 4,
          .tombstones = 0,
          .data_blocks = 2,
          .partitions = 1,
          .key_bytes = 4,
          .value_bytes = 4,
          .smallest = "a",
          .largest = "d"};
}
const RecordList kFirst = {{"a", "1"}, {"b", "2"}};
const RecordList kSecond = {{"c", "3"}, {"d", "4"}};
const std::vector<std::string> kKeys = {"a", "b", "c", "d"};

Status FirstErrorOfAWalk(const IndexTable& table, std::string_view target = "") {
  const auto records = table.NewIterator({});
  Walk(*records, target);
  return records->status();
}

class WrongContentsTest : public ::testing::Test {
 protected:
  std::shared_ptr<IndexTable> Open() {
    auto table = IndexTable::Open(tables_.context, RawTable::kNumber);
    EXPECT_OK(table);
    if (!table.ok()) return nullptr;
    ExpectManyAreToldAlike((*table)->info());
    return *table;
  }
  // "t/0000000000000001.index: offset 4096: "
  std::string At(uint64_t offset) const {
    return sstable::At(tables_.Path(RawTable::kNumber), offset);
  }

  // A lookup of many keys gives for each the result of a lookup of that key alone.
  void ExpectManyAreToldAlike(const TableInfo& info) {
    BlockCache cache(1 << 20);
    LsmOptions options{.tables = tables_.context, .shape = {}};
    options.tables.cache = &cache;
    const LiveTable live{.number = info.number, .level = 1, .bytes = info.bytes};
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, std::vector{live}));
    const std::vector<std::string> keys = {"a", "b", "bb", "c", "cc", "d", "xa", "xr", "xt"};
    const std::vector<std::string> cold = ByMultiGet(*index, keys);
    EXPECT_EQ(cold, ByGets(*index, keys));
    EXPECT_EQ(cold, ByMultiGet(*index, keys));
  }

  TestTables tables_ = TestTables::InMemory();
  RawTable raw_;
};

TEST_F(WrongContentsTest, ATableBuiltBlockByBlock) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
  const BlockHandle partition = raw_.Add(
      BlockKind::kPartition, {{"b", EncodeHandle(first)}, {"d", EncodeHandle(second)}}, kKeys);
  raw_.Write(tables_, {{"d", EncodeHandle(partition)}}, FourRecords());
  const auto table = Open();
  EXPECT_OK(table->Verify());
  EXPECT_EQ(Walk(*table->NewIterator({})).size(), 4u);
}

TEST_F(WrongContentsTest, ABlockOfAnotherKind) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  raw_.Write(tables_, {{"d", EncodeHandle(first)}}, FourRecords());
  const auto table = Open();
  const std::string where = tables_.Path(RawTable::kNumber) + ": offset 0";
  EXPECT_FAILS(table->Get("a", {}), StatusCode::kCorruption, where);
  EXPECT_FAILS(FirstErrorOfAWalk(*table), StatusCode::kCorruption, where);
  EXPECT_FAILS(table->Verify(), StatusCode::kCorruption, where);
}

// Found in memory, a block is what it was read as, and not what the next entry takes it for.
TEST_F(WrongContentsTest, ABlockInMemoryThatAnotherEntryTakesForAPartition) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle partition =
      raw_.Add(BlockKind::kPartition, {{"b", EncodeHandle(first)}}, {"a", "b"});
  raw_.Write(tables_, {{"b", EncodeHandle(partition)}, {"d", EncodeHandle(first)}}, FourRecords());
  const auto table = Open();
  ASSERT_OK(table->Get("a", {}));
  const uint64_t reads = tables_.reads();
  for (const bool memory_only : {false, true}) {
    EXPECT_FAILS(table->Get("c", {.memory_only = memory_only}), StatusCode::kCorruption,
                 At(first.offset) + "block: of kind 1, expected 2");
    ASSERT_OK_ASSIGN(const auto found, table->Get("a", {.memory_only = memory_only}));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, "1");
  }
  EXPECT_EQ(tables_.reads(), reads);
}

TEST_F(WrongContentsTest, AnEntryThatNamesNoBlock) {
  const std::vector<std::optional<std::string>> values = {
      std::nullopt, "", "\x01", EncodeHandle({uint64_t{1} << 30, kTableAlignment})};
  for (const auto& value : values) {
    for (const bool in_root : {false, true}) {
      raw_ = {};
      tables_ = TestTables::InMemory();
      const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
      const BlockHandle partition = raw_.Add(
          BlockKind::kPartition, {{"b", EncodeHandle(first)}, {"d", value}}, {"a", "b", "c"});
      RecordList root = {{"b", EncodeHandle(partition)}, {"d", EncodeHandle(partition)}};
      if (in_root) root.back().second = value;
      raw_.Write(tables_, root, FourRecords());
      const auto table = Open();
      const uint64_t offset = in_root ? partition.offset + partition.bytes : partition.offset;
      const std::string where = At(offset) + "block: the entry at byte ";
      EXPECT_FAILS(table->Get("c", {}), StatusCode::kCorruption, where);
      EXPECT_FAILS(FirstErrorOfAWalk(*table, "c"), StatusCode::kCorruption, where);
      std::vector<std::string> damage;
      table->VerifyEach([&](const Status& status) { damage.push_back(status.ToString()); });
      ASSERT_FALSE(damage.empty());
      EXPECT_NE(damage.back().find(where), std::string::npos) << damage.back();
    }
  }
}

TEST_F(WrongContentsTest, BlocksThatDoNotFollowEachOther) {
  const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle partition = raw_.Add(
      BlockKind::kPartition, {{"d", EncodeHandle(second)}, {"e", EncodeHandle(first)}}, kKeys);
  raw_.Write(tables_, {{"e", EncodeHandle(partition)}}, FourRecords());
  const auto table = Open();
  EXPECT_FAILS(table->Verify(), StatusCode::kCorruption,
               At(first.offset) + "block: does not follow the one before");
  // Merged, it would make a table that nothing is found in.
  OlderData older(std::make_shared<const Levels>(), 0);
  tables_.callbacks->next_number = 2;
  const auto merged = table->NewMergeIterator();
  EXPECT_FAILS(WriteTables(tables_.context, *merged, older, 1 << 20), StatusCode::kCorruption,
               "t: an index table is out of order at a key of 1 bytes");
  EXPECT_EQ(tables_.callbacks->taken, 0u);
}

TEST_F(WrongContentsTest, AFilterOfOtherKeys) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
  const BlockHandle partition =
      raw_.Add(BlockKind::kPartition, {{"b", EncodeHandle(first)}, {"d", EncodeHandle(second)}},
               {"another"});
  raw_.Write(tables_, {{"d", EncodeHandle(partition)}}, FourRecords());
  EXPECT_FAILS(Open()->Verify(), StatusCode::kCorruption,
               At(first.offset) + "block: a key that the filter does not know");
}

// A walk shows all records, and a lookup behind the restart misses some.
TEST_F(WrongContentsTest, ARestartThatIsNoneOfTheEntries) {
  RecordList records;
  std::vector<std::string> keys;
  for (char c = 'a'; c < 'a' + 20; ++c) {
    keys.push_back({c});
    records.emplace_back(std::string(1, c), "");
  }
  const BlockHandle data = raw_.Add(BlockKind::kData, records, {}, MoveLastRestart(2));
  const BlockHandle partition = raw_.Add(BlockKind::kPartition, {{"t", EncodeHandle(data)}}, keys);
  raw_.Write(tables_, {{"t", EncodeHandle(partition)}},
             {.records = 20,
              .data_blocks = 1,
              .partitions = 1,
              .key_bytes = 20,
              .smallest = "a",
              .largest = "t"});
  EXPECT_FAILS(Open()->Verify(), StatusCode::kCorruption,
               At(data.offset) + "block: a restart is none of its entries");
}

// The restart is the entry behind the right one, which leaves out what it shares with the key
// before it. Whatever searches the block stumbles over it; a walk from the first entry would not.
TEST_F(WrongContentsTest, ARestartThatIsAnEntryWithoutItsPrefix) {
  RecordList records;
  std::vector<std::string> keys;
  for (char c = 'a'; c < 'a' + 20; ++c) {
    keys.push_back(std::string("x") + c);
    records.emplace_back(keys.back(), "");
  }
  // An entry that shares nothing: three lengths and the key.
  const BlockHandle data = raw_.Add(BlockKind::kData, records, {}, MoveLastRestart(3 + 2));
  const BlockHandle partition = raw_.Add(BlockKind::kPartition, {{"xt", EncodeHandle(data)}}, keys);
  raw_.Write(tables_, {{"xt", EncodeHandle(partition)}},
             {.records = 20,
              .data_blocks = 1,
              .partitions = 1,
              .key_bytes = 40,
              .smallest = "xa",
              .largest = "xt"});
  const auto table = Open();
  EXPECT_FAILS(table->Verify(), StatusCode::kCorruption,
               At(data.offset) + "block: a restart is none of its entries");
  const std::string where = At(data.offset) + "block: the entry at byte ";
  EXPECT_FAILS(table->Get("xr", {}), StatusCode::kCorruption, where);
  EXPECT_FAILS(FirstErrorOfAWalk(*table), StatusCode::kCorruption, where);
}

TEST_F(WrongContentsTest, AKeyThatItsEntryDoesNotCover) {
  // One of the entries of the partition and of the root is wrong.
  struct Case {
    std::string first, second, root;
  };
  for (const Case& wrong : {Case{"a", "d", "d"}, Case{"bb", "cc", "d"}, Case{"b", "d", "cc"}}) {
    raw_ = {};
    tables_ = TestTables::InMemory();
    const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
    const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
    const BlockHandle partition =
        raw_.Add(BlockKind::kPartition,
                 {{wrong.first, EncodeHandle(first)}, {wrong.second, EncodeHandle(second)}}, kKeys);
    raw_.Write(tables_, {{wrong.root, EncodeHandle(partition)}}, FourRecords());
    const BlockHandle& bad = wrong.first == "a" ? first : second;
    EXPECT_FAILS(Open()->Verify(), StatusCode::kCorruption,
                 At(bad.offset) + "block: a key that its entry in the index does not cover");
  }
}

TEST_F(WrongContentsTest, AFooterThatCountsOtherwise) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
  const BlockHandle partition = raw_.Add(
      BlockKind::kPartition, {{"b", EncodeHandle(first)}, {"d", EncodeHandle(second)}}, kKeys);
  TableInfo info = FourRecords();
  info.records = 5;
  raw_.Write(tables_, {{"d", EncodeHandle(partition)}}, info);
  const auto table = Open();
  EXPECT_FAILS(
      table->Verify(), StatusCode::kCorruption,
      At(table->info().bytes - kTableAlignment) + "the footer does not count what the table holds");
}

TEST_F(WrongContentsTest, AnEndBeforeTheLastKey) {
  const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
  const BlockHandle partition =
      raw_.Add(BlockKind::kPartition, {{"b", EncodeHandle(first)}}, {"a", "b", "c"});
  raw_.Write(tables_, {{"c", EncodeHandle(partition)}}, FourRecords());
  const auto table = Open();
  const std::string where = At(partition.offset) + "the partition ends before its last key";
  EXPECT_FAILS(table->Get("c", {}), StatusCode::kCorruption, where);
  EXPECT_FAILS(FirstErrorOfAWalk(*table, "c"), StatusCode::kCorruption, where);
  EXPECT_FAILS(table->Get("d", {}), StatusCode::kCorruption,
               At(partition.offset + partition.bytes) + "the root ends before the largest key");
}

// A walk has served all that comes before, and says where it ends.
TEST_F(WrongContentsTest, AWalkThatComesToADamagedEntryOfTheRoot) {
  const std::vector<Change> changes = {
      // Not behind the key before it.
      [](std::string& block) { block[block.find('d', sizeof(BlockHeader))] = 'a'; },
      [](std::string& block) { block[block.find('d', sizeof(BlockHeader)) - 3] = '\x05'; },
      nullptr,  // Right in itself, but what it names is a data block.
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    raw_ = {};
    tables_ = TestTables::InMemory();
    const BlockHandle first = raw_.Add(BlockKind::kData, kFirst);
    const BlockHandle second = raw_.Add(BlockKind::kData, kSecond);
    const BlockHandle partition =
        raw_.Add(BlockKind::kPartition, {{"b", EncodeHandle(first)}}, {"a", "b"});
    raw_.Write(tables_, {{"b", EncodeHandle(partition)}, {"d", EncodeHandle(second)}},
               FourRecords(), changes[i]);
    const auto table = Open();
    const std::string where = changes[i] != nullptr
                                  ? At(partition.offset + partition.bytes) + "block: the entry at "
                                  : At(second.offset) + "block: of kind 1, expected 2";
    for (const bool merge : {false, true}) {
      const auto records = merge ? table->NewMergeIterator() : table->NewIterator({});
      EXPECT_EQ(Walk(*records), kFirst);
      EXPECT_FAILS(records->status(), StatusCode::kCorruption, where);
    }
  }
}

TEST(IndexTableRoot, ThatIsLargerThanTheEndThatIsReadAtOnce) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  RawTable raw;
  const BlockHandle first = raw.Add(BlockKind::kData, kFirst);
  const BlockHandle partition =
      raw.Add(BlockKind::kPartition, {{"b", EncodeHandle(first)}}, {"a", "b"});
  Records root;
  root["b"] = EncodeHandle(partition);
  for (uint64_t i = 0; i < 50; ++i) root["c" + ValueOf(i, 1000)] = EncodeHandle(partition);
  raw.Write(tables, ListOf(root), FourRecords());
  {
    ASSERT_OK_ASSIGN(const auto table, IndexTable::Open(tables.context, RawTable::kNumber));
    EXPECT_EQ(tables.reads(), 2u);
    ASSERT_OK_ASSIGN(const auto found, table->Get("b", {}));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, "2");
  }
  disk->AddFault({.when =
                      [&](const io::SimOperation& op) {
                        return op.op == io::SimOp::kRead &&
                               op.offset == partition.offset + partition.bytes;
                      },
                  .error = EIO});
  EXPECT_FAILS(IndexTable::Open(tables.context, RawTable::kNumber), StatusCode::kIoError,
               tables.Path(RawTable::kNumber));
}

TEST(WriteTables, ATableThatCannotBeOpenedIsTakenBack) {
  auto disk = std::make_shared<io::SimDisk>();
  TestTables tables = TestTables::OnDisk(disk);
  disk->AddFault({.when =
                      [&](const io::SimOperation& op) {
                        return op.op == io::SimOp::kOpen && op.path.ends_with(tables.Path(1));
                      },
                  .error = EIO});
  OlderData older(std::make_shared<const Levels>(), 0);
  const auto records = IterateRecords(MakeRecords(10));
  EXPECT_FAILS(WriteTables(tables.context, *records, older, 1 << 20), StatusCode::kIoError,
               tables.Path(1));
  EXPECT_EQ(disk->faults_struck(), 1u);
  EXPECT_TRUE(disk->Files().empty());
  EXPECT_EQ(tables.callbacks->taken, 0u);
}

}  // namespace
}  // namespace cairn::sstable
