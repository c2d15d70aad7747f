// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of index tables: a place to write tables, callbacks that hand out numbers and
// counts space, and records whose contents follow from a number.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/world.h"
#include "sim/disk.h"
#include "sstable/index_table.h"
#include "sstable/index_writer.h"
#include "sstable/table_files.h"
#include "tests/support/status.h"

namespace cairn::sstable {

inline constexpr StoreId kTestStore{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

// A null value is a tombstone.
using Records = std::map<std::string, std::optional<std::string>>;
using RecordList = std::vector<std::pair<std::string, std::optional<std::string>>>;

class TestCallbacks final : public TableCallbacks {
 public:
  Result<uint64_t> NewTableNumber() override {
    if (!refuse_numbers.ok()) return refuse_numbers;
    return next_number++;
  }
  Status TakeSpace(uint64_t bytes) override {
    if (taken + bytes > capacity) return Status(StatusCode::kNoSpace, "the test's cap is full");
    taken += bytes;
    return Status::Ok();
  }
  void ReturnSpace(uint64_t bytes) override {
    CAIRN_CHECK(bytes <= taken);
    taken -= bytes;
  }

  uint64_t next_number = 1;
  uint64_t taken = 0;
  uint64_t capacity = UINT64_MAX;
  Status refuse_numbers;
};

// An allocator that counts, and refuses from the `refuse_at`-th allocation on, and where more than
// `live_max` bytes would live.
struct TestAllocator {
  Allocator allocator();
  uint64_t allocations = 0;
  uint64_t live = 0;
  uint64_t refuse_at = UINT64_MAX;
  uint64_t live_max = UINT64_MAX;
};

// A directory "t" of tables on a file system.
struct TestTables {
  explicit TestTables(std::shared_ptr<io::FileSystem> files, size_t cache_bytes = 4 << 20);
  static TestTables InMemory();
  // With the directory durable.
  static TestTables OnDisk(std::shared_ptr<io::SimDisk> disk, size_t cache_bytes = 4 << 20);

  std::string Path(uint64_t number) const { return IndexTablePath("t", number); }
  uint64_t reads() const { return counters->block_reads.load(); }

  std::shared_ptr<io::FileSystem> files;
  std::unique_ptr<TestCallbacks> callbacks = std::make_unique<TestCallbacks>();
  std::unique_ptr<BlockCache> cache;
  std::unique_ptr<TableCounters> counters = std::make_unique<TableCounters>();
  TableContext context;
};

std::string KeyOf(uint64_t i);                  // "key00000042"
std::string ValueOf(uint64_t i, size_t bytes);  // Not compressible to nothing, from i alone.
// Keys KeyOf(0), KeyOf(step), ...; each `tombstone_every`-th is a tombstone (0: none).
Records MakeRecords(uint64_t count, size_t value_bytes = 20, uint64_t tombstone_every = 0,
                    uint64_t step = 2);

Result<TableInfo> WriteTable(const TableContext& context, uint64_t number, const Records& records);

// All from the target on, or as far as the iterator got.
RecordList Walk(RecordIterator& records, std::string_view target = "");
RecordList ListOf(const Records& records);
// Without the tombstones.
RecordList LiveOf(const Records& records);

// An iterator over a map, for merging.
std::unique_ptr<RecordIterator> IterateRecords(Records records, Status end = Status());

}  // namespace cairn::sstable
