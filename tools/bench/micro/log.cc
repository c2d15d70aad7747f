// SPDX-License-Identifier: Apache-2.0
//
// Looking for a record: in the log-structured index, out of its memtable and out of its tables with
// their blocks in memory; and in the memory of the log.
#include "wal/log.h"

#include <cstring>

#include "base/core/check.h"
#include "sstable/lsm_index.h"
#include "tools/bench/micro/index_parts.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr StoreId kStore{{1, 2, 3}};
constexpr uint32_t kRecords = 100'000;
constexpr size_t kValueBytes = 40;
constexpr size_t kBlockCacheBytes = 64 << 20;  // Room for all of the tables.
constexpr uint32_t kLogRecords = 4096, kPayloadBytes = 4 << 10;

// Records of even numbers; those of odd ones are absent.
class Index {
 public:
  explicit Index(bool in_tables) {
    CAIRN_CHECK(world_.files->CreateDirectory("tables").ok());
    auto opened = sstable::LsmIndex::Open({.tables = {.files = world_.files.get(),
                                                      .directory = "tables",
                                                      .store = kStore,
                                                      .cache = &cache_,
                                                      .callbacks = &numbers_,
                                                      .counters = &counters_},
                                           .shape = {}},
                                          {});
    CAIRN_CHECK(opened.ok());
    index_ = std::move(*opened);
    for (const uint32_t i : ShuffledOrder(kRecords)) {
      sstable::WriteBatch batch = index_->NewBatch();
      CAIRN_CHECK(batch.Put(RecordKey(uint64_t{i} * 2), std::string(kValueBytes, 'v')).ok());
      index_->Apply(std::move(batch));
    }
    if (!in_tables) return;
    CAIRN_CHECK(index_->Freeze(1).ok());
    CAIRN_CHECK(index_->Flush().ok());
  }
  const sstable::LsmIndex& operator*() const { return *index_; }

 private:
  io::World world_ = io::MakeMemoryWorld();
  Numbers numbers_{};
  sstable::BlockCache cache_{kBlockCacheBytes};
  sstable::TableCounters counters_{};
  std::unique_ptr<sstable::LsmIndex> index_{};
};

void Get(::benchmark::State& state, bool in_tables, bool there) {
  static const Index in_memory(false), flushed(true);
  const sstable::LsmIndex& index = in_tables ? *flushed : *in_memory;
  std::vector<std::string> keys;
  for (const uint32_t i : ShuffledOrder(kRecords)) {
    keys.push_back(RecordKey(uint64_t{i} * 2 + (there ? 0 : 1)));
  }
  for (const std::string& key : keys) {  // Brings every block into memory.
    if (Failed(&state, index.Get(key).status())) return;
  }
  uint32_t next = 0;
  const Meter meter(&state, 1, 0);
  for (auto _ : state) {
    const auto value = index.Get(keys[next]);
    CAIRN_CHECK(value.ok() && value->has_value() == there);
    next = (next + 1) % kRecords;
  }
}

Result<wal::Location> AppendRecord(wal::Log& log, std::span<const std::byte> payload) {
  const wal::Strip strip{0, static_cast<uint32_t>(payload.size())};
  const wal::RecordSpec spec{.kind = 1, .fields = {}, .strips = {&strip, 1}};
  for (;;) {
    auto slot = log.Reserve(spec, wal::Purpose::kData);
    if (slot.ok()) {
      std::memcpy(slot->payload + slot->strip_offsets[0], payload.data(), payload.size());
      const uint64_t hash = Hash(payload);
      log.Publish(*slot, {&hash, 1});
      return slot->location;
    }
    if (slot.status().code() != StatusCode::kBusy) return slot.status();
    CAIRN_RETURN_IF_ERROR(log.WaitForRoom(io::kNoDeadline));
  }
}

void FindHot(::benchmark::State& state, bool there) {
  io::World world = io::MakeMemoryWorld();
  wal::LogOptions options;
  options.directory = "log";
  options.store = kStore;
  options.hot_tail_bytes = uint64_t{4} * kLogRecords * kPayloadBytes;
  if (Failed(&state, world.files->CreateDirectory("log"))) return;
  auto log = wal::Log::Open(world, options, {});
  if (Failed(&state, log.status())) return;
  const std::vector<std::byte> payload(kPayloadBytes, std::byte{7});
  std::vector<wal::Location> places;
  for (uint32_t i = 0; i < kLogRecords; ++i) {
    auto place = AppendRecord(**log, payload);
    if (Failed(&state, place.status())) return;
    places.push_back(*place);
    if (!there) places.back().segment += 1000;
  }
  const std::vector<uint32_t> order = ShuffledOrder(kLogRecords);
  uint32_t next = 0;
  {
    const Meter meter(&state, 1, 0);
    for (auto _ : state) {
      const wal::Location& place = places[order[next]];
      CAIRN_CHECK((*log)->FindHot(place, place.bytes).bytes.empty() != there);
      next = (next + 1) % kLogRecords;
    }
  }
  Failed(&state, (*log)->Close());
}

}  // namespace

void RegisterLog() {
  for (const bool there : {true, false}) {
    const std::string what = there ? "hit" : "miss";
    ::benchmark::RegisterBenchmark(("index/memtable/" + what).c_str(), Get, false, there);
    ::benchmark::RegisterBenchmark(("index/tables/" + what).c_str(), Get, true, there);
    ::benchmark::RegisterBenchmark(("log/find_hot/" + what).c_str(), FindHot, there);
  }
}

}  // namespace cairn::bench::micro
