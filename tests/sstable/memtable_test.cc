// SPDX-License-Identifier: Apache-2.0
//
// Property: a memtable is a sorted map of the newest records; batches take all their memory before
// they are applied; readers beside the writer see whole records in order.
#include "sstable/memtable.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/sstable/table_fixture.h"

namespace cairn::sstable {
namespace {

constexpr auto kIgnorePut = [](std::string_view) {};

void Put(Memtable& memtable, std::string_view key, std::string_view value) {
  WriteBatch batch(Allocator::Default());
  ASSERT_OK(batch.Put(key, value));
  memtable.Apply(std::move(batch), kIgnorePut);
}

void Delete(Memtable& memtable, std::string_view key) {
  WriteBatch batch(Allocator::Default());
  ASSERT_OK(batch.Delete(key));
  memtable.Apply(std::move(batch), kIgnorePut);
}

TEST(Memtable, IsASortedMapOfTheNewest) {
  const auto memtable = Memtable::TryMake(Allocator::Default());
  EXPECT_TRUE(memtable->empty());
  Records model;
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = KeyOf(random() % 3000);
    if (random() % 4 == 0) {
      Delete(*memtable, key);
      model[key] = std::nullopt;
    } else {
      const std::string value = ValueOf(random(), random() % 40);
      Put(*memtable, key, value);
      model[key] = value;
    }
  }
  EXPECT_FALSE(memtable->empty());
  const auto scan = memtable->NewIterator();
  EXPECT_EQ(Walk(*scan), ListOf(model));
  for (uint64_t i = 0; i < 3001; ++i) {
    const std::string key = KeyOf(i);
    const auto at = model.find(key);
    const auto found = memtable->Get(key);
    ASSERT_EQ(found.has_value(), at != model.end());
    if (found && *found) {
      ASSERT_EQ(**found, *at->second);
    }
    if (found) {
      ASSERT_EQ(found->has_value(), at->second.has_value());
    }
    scan->Seek(key + "5");
    const auto next = model.upper_bound(key + "5");
    ASSERT_EQ(scan->valid(), next != model.end());
    if (scan->valid()) {
      ASSERT_EQ(scan->key(), next->first);
    }
  }
}

TEST(Memtable, KeysOfEveryShape) {
  const auto memtable = Memtable::TryMake(Allocator::Default());
  const Records records{{"", "empty"},
                        {std::string("\0", 1), ""},
                        {"\x7f", "a"},
                        {"\x80", std::nullopt},
                        {std::string(kMaxKeyBytes, '\xff'), ValueOf(1, kMaxValueBytes)}};
  for (const auto& [key, value] : records) {
    value ? Put(*memtable, key, *value) : Delete(*memtable, key);
  }
  EXPECT_EQ(Walk(*memtable->NewIterator()), ListOf(records));
}

TEST(Memtable, ABatchIsAppliedInItsOrder) {
  const auto memtable = Memtable::TryMake(Allocator::Default());
  WriteBatch batch(Allocator::Default());
  EXPECT_TRUE(batch.empty());
  ASSERT_OK(batch.Put("a", "1"));
  ASSERT_OK(batch.Delete("b"));
  ASSERT_OK(batch.Put("a", "2"));
  ASSERT_OK(batch.Put("b", "3"));
  ASSERT_OK(batch.Delete("a"));
  const size_t bytes = batch.bytes();
  EXPECT_GT(bytes, 5u * 2);
  std::string puts;
  memtable->Apply(std::move(batch), [&](std::string_view key) { puts += key; });
  EXPECT_EQ(puts, "aab");
  EXPECT_EQ(memtable->bytes(), bytes);
  const RecordList expected{{"a", std::nullopt}, {"b", "3"}};
  EXPECT_EQ(Walk(*memtable->NewIterator()), expected);
}

TEST(Memtable, MemoryIsTakenBeforeAndGivenBack) {
  TestAllocator memory;
  {
    const auto memtable = Memtable::TryMake(memory.allocator());
    const uint64_t empty = memory.live;
    WriteBatch batch(memory.allocator());
    ASSERT_OK(batch.Put("key", "value"));
    memory.refuse_at = memory.allocations;
    EXPECT_FAILS(batch.Put("other", "value"), StatusCode::kOutOfMemory);
    EXPECT_EQ(memory.live - empty, batch.bytes());
    const uint64_t allocations = memory.allocations;
    WriteBatch moved(std::move(batch));
    EXPECT_TRUE(batch.empty());  // NOLINT(bugprone-use-after-move): by contract.
    memtable->Apply(std::move(moved), kIgnorePut);
    EXPECT_EQ(memory.allocations, allocations);
    EXPECT_EQ(memory.live - empty, memtable->bytes());
    EXPECT_EQ(Memtable::TryMake(memory.allocator()), nullptr);
    memory.refuse_at = UINT64_MAX;
    WriteBatch dropped(memory.allocator());
    ASSERT_OK(dropped.Put("never", "applied"));
    WriteBatch assigned(memory.allocator());
    ASSERT_OK(assigned.Put("never", "either"));
    assigned = std::move(dropped);
  }
  EXPECT_EQ(memory.live, 0u);
}

TEST(Memtable, AReplacedRecordStaysForItsReader) {
  auto memtable = Memtable::TryMake(Allocator::Default());
  for (uint64_t i = 0; i < 100; ++i) Put(*memtable, KeyOf(i), "old");
  const auto scan = memtable->NewIterator();
  scan->Seek(KeyOf(50));
  for (uint64_t i = 0; i < 100; ++i) Put(*memtable, KeyOf(i), "new");
  EXPECT_EQ(scan->key(), KeyOf(50));
  EXPECT_EQ(*scan->value(), "old");
  memtable = nullptr;  // The iterator keeps it.
  scan->Next();
  EXPECT_EQ(scan->key(), KeyOf(51));
  scan->Seek(KeyOf(50));
  EXPECT_EQ(*scan->value(), "new");
}

TEST(Memtable, ReadersBesideTheWriter) {
  const auto memtable = Memtable::TryMake(Allocator::Default());
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      const auto scan = memtable->NewIterator();
      bool last = false;
      while (!last) {
        last = done.load();
        std::string before;
        for (scan->Seek(""); scan->valid(); scan->Next()) {
          const std::string key(scan->key());
          ASSERT_LT(before, key);
          before = key;
          if (!scan->value()) continue;
          // A value says whose it is.
          ASSERT_TRUE(scan->value()->starts_with(key));
          const auto found = memtable->Get(key);
          ASSERT_TRUE(found.has_value());
          if (*found) {
            ASSERT_TRUE((*found)->starts_with(key));
          }
        }
      }
    });
  }
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = KeyOf(random() % 500);
    if (random() % 5 == 0) {
      Delete(*memtable, key);
    } else {
      Put(*memtable, key, key + ValueOf(random(), random() % 20));
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace cairn::sstable
