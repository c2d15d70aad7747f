// SPDX-License-Identifier: Apache-2.0
//
// Property: MultiGet says of each key what Get says of it, word for word: on generated stores, with
// any part of them in memory, with every block damaged in turn, every read failing, memory refused
// at each allocation, and while tables are flushed, merged and replaced.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "sim/world.h"
#include "tests/sstable/multi_get_fixture.h"
#include "tests/support/strike.h"
#include "tests/support/test_seed.h"

namespace cairn::sstable {
namespace {

// A store that lives through writes, flushes, merges and openings.
class Life {
 public:
  explicit Life(uint64_t seed) : random_(seed) { Reopen(); }

  void Step() {
    switch (random_() % 10) {
      case 0: ASSERT_OK(index_->Freeze(++mark_)); break;
      case 1:
      case 2:
        ASSERT_OK(index_->Freeze(++mark_));
        ASSERT_OK(index_->Flush());
        break;
      case 3: ASSERT_OK(index_->CompactOnce()); break;
      case 4:
        FlushAll(*index_);
        Reopen();
        break;
      default: Write(); break;
    }
    for (const LiveTable& table : index_->live()) {
      deepest_ = std::max<size_t>(deepest_, table.level);
    }
  }

  void Compare() {
    std::vector<std::string> keys;
    for (uint64_t n = random_() % 300; n > 0; --n) {
      switch (random_() % 20) {
        case 0: keys.emplace_back(); break;
        case 1: keys.push_back(keys.empty() ? "key" : keys[random_() % keys.size()]); break;
        case 2: keys.push_back(KeyOf(random_() % 5000) + "+"); break;
        case 3: keys.push_back(std::string(2 * kMaxKeyBytes, 'k')); break;
        default: keys.push_back(KeyOf(random_() % 5000)); break;
      }
    }
    if (random_() % 3 == 0) std::sort(keys.begin(), keys.end());
    const ReadOptions in_memory{.memory_only = true};
    const std::vector<std::string> remembered = ByGets(*index_, keys, in_memory);
    EXPECT_EQ(ByMultiGet(*index_, keys, in_memory), remembered);
    for (const std::string& text : remembered) busy_ += text.starts_with("Busy");
    EXPECT_EQ(ByMultiGet(*index_, keys), ByModel(model_, keys));
    EXPECT_EQ(ByGets(*index_, keys), ByModel(model_, keys));
  }

  size_t deepest() const { return deepest_; }
  uint64_t busy() const { return busy_; }

 private:
  void Write() {
    for (uint64_t n = random_() % 200; n > 0; --n) {
      const std::string key = KeyOf(random_() % (random_() % 3 == 0 ? 5000 : 300));
      std::optional<std::string>& value = model_[key];
      if (random_() % 3 == 0) {
        value.reset();
        Delete(*index_, key);
      } else {
        value = ValueOf(random_(), random_() % 200);
        Put(*index_, key, *value);
      }
    }
  }

  // With a cache of another size, and nothing in it.
  void Reopen() {
    const std::vector<LiveTable> live =
        index_ == nullptr ? std::vector<LiveTable>() : index_->live();
    index_ = nullptr;
    constexpr size_t kCaches[] = {0, 64 << 10, 512 << 10, 4 << 20};
    cache_ = std::make_unique<BlockCache>(kCaches[random_() % std::size(kCaches)]);
    tables_.context.cache = cache_.get();
    ASSERT_OK_ASSIGN(index_, LsmIndex::Open(OptionsOf(tables_), live));
  }

  std::mt19937_64 random_;
  TestTables tables_ = TestTables::InMemory();
  std::unique_ptr<BlockCache> cache_;
  std::unique_ptr<LsmIndex> index_;
  Records model_;
  uint64_t mark_ = 0;
  size_t deepest_ = 0;
  uint64_t busy_ = 0;
};

TEST(MultiGet, SaysWhatGetSays) {
  const uint64_t first = testing::QuickTestSeed();
  size_t deepest = 0;
  uint64_t busy = 0;
  for (uint64_t seed = first; seed < first + 20; ++seed) {
    const testing::Repeatable repeatable(seed);
    Life life(seed);
    for (int step = 0; step < 120 && !::testing::Test::HasFailure(); ++step) {
      life.Step();
      if (step % 3 == 0) life.Compare();
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << repeatable.command();
    deepest = std::max(deepest, life.deepest());
    busy += life.busy();
  }
  EXPECT_GE(deepest, 2u);
  EXPECT_GT(busy, 0u);
}

TEST(MultiGet, OfNoKeysOrOfAnEmptyIndex) {
  TestTables tables = TestTables::InMemory();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
  EXPECT_TRUE(index->MultiGet({}).empty());
  EXPECT_EQ(ByMultiGet(*index, {"b", "a", "b"}),
            (std::vector<std::string>{"absent", "absent", "absent"}));
}

// A store on a disk that fails.
class Damaged {
 public:
  Damaged() : live_(MakeSeveralLevels(tables_, &model_)) {}

  // With nothing in memory but footers and roots. The one before is gone.
  std::unique_ptr<LsmIndex> Open() {
    cache_ = std::make_unique<BlockCache>(4 << 20);
    LsmOptions options = OptionsOf(tables_);
    options.tables.cache = cache_.get();
    auto index = LsmIndex::Open(options, live_);
    CAIRN_CHECK(index.ok());
    return std::move(*index);
  }
  io::SimDisk& disk() { return *disk_; }
  const TestTables& tables() const { return tables_; }
  const Records& model() const { return model_; }
  const std::vector<LiveTable>& live() const { return live_; }

 private:
  const std::shared_ptr<io::SimDisk> disk_ = std::make_shared<io::SimDisk>();
  TestTables tables_ = TestTables::OnDisk(disk_);
  Records model_;
  const std::vector<LiveTable> live_;
  std::unique_ptr<BlockCache> cache_;
};

TEST(MultiGet, ADamagedBlockFailsTheKeysThatNeedIt) {
  Damaged store;
  const std::vector<std::string> keys = AllKeys();
  const std::vector<std::string> whole = ByModel(store.model(), keys);
  EXPECT_EQ(ByMultiGet(*store.Open(), keys), whole);
  std::map<uint16_t, uint64_t> needed;  // Blocks, by kind. Newer records may hide all of one.
  for (const LiveTable& table : store.live()) {
    const std::string path = store.tables().Path(table.number);
    ASSERT_OK_ASSIGN(const auto file, store.disk().ReadRaw(path));
    for (uint64_t offset = 0; offset < file.size() - kTableAlignment;) {
      const auto header = LoadAs<BlockHeader>(file.data() + offset);
      const uint64_t at = std::exchange(offset, offset + AlignUp(header.bytes, kTableAlignment));
      if (header.kind == static_cast<uint16_t>(BlockKind::kRoot)) continue;
      ASSERT_OK(store.disk().FlipBit(path, at + header.bytes / 2, 3));
      const std::vector<std::string> found = ByMultiGet(*store.Open(), keys);
      ASSERT_EQ(found, ByGets(*store.Open(), keys)) << path << " " << at;
      uint64_t failed = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (found[i] == whole[i]) continue;
        ++failed;
        ASSERT_TRUE(found[i].starts_with("Corruption: " + At(path, at))) << found[i];
      }
      EXPECT_LT(failed, keys.size()) << path << " " << at;
      if (failed > 0) ++needed[header.kind];
      ASSERT_OK(store.disk().FlipBit(path, at + header.bytes / 2, 3));
    }
  }
  EXPECT_GT(needed[static_cast<uint16_t>(BlockKind::kPartition)], 5u);
  EXPECT_GT(needed[static_cast<uint16_t>(BlockKind::kData)], 15u);
}

TEST(MultiGet, AReadThatFailsFailsTheKeysOfItsBlock) {
  Damaged store;
  const std::vector<std::string> keys = AllKeys();
  const std::vector<std::string> whole = ByModel(store.model(), keys);
  uint64_t reads = 0;
  for (bool met = true; met; ++reads) {
    const auto index = store.Open();
    std::vector<std::string> found;
    {
      const testing::Strike strike(store.disk(), reads, [](const io::SimOperation& operation) {
        return operation.op == io::SimOp::kRead;
      });
      found = ByMultiGet(*index, keys);
      met = strike.met();
    }
    std::set<std::string> errors;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found[i] != whole[i]) errors.insert(found[i]);
    }
    ASSERT_EQ(errors.size(), met ? 1u : 0u) << reads;
    if (met) {
      EXPECT_TRUE(errors.begin()->starts_with("IoError: read t/")) << *errors.begin();
    }
    EXPECT_EQ(ByMultiGet(*index, keys), whole);  // Failures were not cached.
  }
  EXPECT_GT(reads, 20u);
}

TEST(MultiGet, MemoryThatIsRefusedFailsTheKeysThatNeedIt) {
  TestTables tables = TestTables::InMemory();
  Records model;
  const std::vector<LiveTable> live = MakeSeveralLevels(tables, &model);
  const std::vector<std::string> keys = AllKeys();
  const std::vector<std::string> whole = ByModel(model, keys);
  bool refused = true;
  for (uint64_t n = 0; refused; ++n) {
    TestAllocator memory;
    BlockCache cache(4 << 20);
    LsmOptions options = OptionsOf(tables);
    options.tables.allocator = memory.allocator();
    options.tables.cache = &cache;
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, live));
    memory.refuse_at = memory.allocations + n;
    const std::vector<std::string> found = ByMultiGet(*index, keys);
    refused = memory.allocations > memory.refuse_at;
    uint64_t failed = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found[i] == whole[i]) continue;
      ++failed;
      ASSERT_TRUE(found[i].starts_with("OutOfMemory: no memory to read ")) << found[i];
    }
    ASSERT_EQ(failed > 0, refused) << n;
    memory.refuse_at = UINT64_MAX;
    ASSERT_EQ(ByMultiGet(*index, keys), whole);
  }
}

// Everyone else's memory is enough for three blocks: then that many are in flight.
TEST(MultiGet, MakesDoWithTheMemoryThatThereIs) {
  TestTables tables = TestTables::InMemory();
  Records model;
  const std::vector<LiveTable> live = MakeSeveralLevels(tables, &model);
  TestAllocator memory;
  BlockCache cache(0);
  const auto files = std::make_shared<CountingFiles>(tables.files);
  LsmOptions options = OptionsOf(tables);
  options.tables.allocator = memory.allocator();
  options.tables.cache = &cache;
  options.tables.files = files.get();
  ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(options, live));
  memory.live_max = memory.live + 3 * kIndexBlockBytes;
  const std::vector<std::string> keys = AllKeys();
  EXPECT_EQ(ByMultiGet(*index, keys), ByModel(model, keys));
  EXPECT_GE(files->in_flight_max, 3u);
  EXPECT_LE(files->bytes_max, 3 * kIndexBlockBytes);
}

// In simulation every transfer may switch to another fiber. Versions of a key only grow, so what is
// found lies between those before and after the call.
TEST(MultiGet, WhileTablesComeAndGo) {
  constexpr uint64_t kKeys = 60;
  const auto is_deletion = [](uint64_t version) { return version % 4 == 0; };
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    io::SimWorld world = io::MakeSimWorld(seed);
    TestTables tables = TestTables::OnDisk(world.disk, 64 << 10);
    ASSERT_OK_ASSIGN(const auto index, LsmIndex::Open(OptionsOf(tables), {}));
    std::vector<uint64_t> versions(kKeys, 0);
    bool done = false;
    uint64_t merges = 0, lookups = 0;
    std::vector<std::unique_ptr<io::Thread>> threads;
    threads.push_back(world.scheduler->StartThread("shape", [&] {
      for (; !done; world.scheduler->Sleep(10'000)) {
        ASSERT_OK(index->Flush());
        ASSERT_OK_ASSIGN(const auto edit, index->CompactOnce());
        if (edit) {
          ++merges;
          index->Release(edit->removed);
        }
        ASSERT_OK(index->DeleteReleased());
      }
    }));
    for (int reader = 0; reader < 2; ++reader) {
      threads.push_back(world.scheduler->StartThread("read", [&] {
        std::vector<std::string> keys;
        for (uint64_t k = 0; k < kKeys; ++k) keys.push_back(KeyOf(k));
        const std::vector<std::string_view> views(keys.begin(), keys.end());
        for (; !done; world.scheduler->Sleep(10'000)) {
          const std::vector<uint64_t> before = versions;
          const auto found = index->MultiGet(views);
          ++lookups;
          for (uint64_t k = 0; k < kKeys; ++k) {
            ASSERT_OK(found[k]);
            bool right = false;
            for (uint64_t v = before[k]; v <= versions[k]; ++v) {
              right |= is_deletion(v) ? !found[k]->has_value()
                                      : *found[k] == std::to_string(v) + ValueOf(k, 300);
            }
            ASSERT_TRUE(right) << "seed " << seed << " key " << k;
          }
        }
      }));
    }
    for (uint64_t i = 0; i < 1500; ++i) {
      const uint64_t k = i * 7 % kKeys;
      const uint64_t version = versions[k] + 1;
      if (is_deletion(version)) {
        Delete(*index, KeyOf(k));
      } else {
        Put(*index, KeyOf(k), std::to_string(version) + ValueOf(k, 300));
      }
      versions[k] = version;
      if (i % 25 == 0) {
        ASSERT_OK(index->Freeze(i));
        while (index->stats().frozen_memtables > 2) world.scheduler->Sleep(50'000);
      }
      world.scheduler->Yield();
    }
    done = true;
    threads.clear();
    EXPECT_GT(merges, 1u);
    EXPECT_GT(lookups, 100u);
  }
}

}  // namespace
}  // namespace cairn::sstable
