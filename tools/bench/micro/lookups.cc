// SPDX-License-Identifier: Apache-2.0
//
// A thousand keys of a million records that lie on the disk, below cairn-bench.tmp: one Get after
// the other, and one MultiGet; with every block in memory (warm), and with none but the roots of
// the tables (cold: the cache is dropped, and the index reads past that of the operating system).
// Beside them as many reads, 64 in flight, which nobody looks at: what the device takes for them.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "base/core/check.h"
#include "base/io/queue_pool.h"
#include "sstable/lsm_index.h"
#include "tools/bench/machine.h"
#include "tools/bench/micro/index_parts.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr StoreId kStore{{1, 2, 3}};
constexpr uint32_t kRecords = 1'000'000;
constexpr uint32_t kKeys = 1'000;
constexpr uint32_t kFlushes = 10;  // So that there are several levels, with tables that overlap.
constexpr size_t kValueBytes = 40;
constexpr size_t kBlockCacheBytes = 256 << 20;  // Room for all of the tables.

class DiskIndex {
 public:
  DiskIndex() {
    auto scratch = ScratchDirectory::Create("cairn-bench.tmp", "lookups");
    CAIRN_CHECK(scratch.ok());
    scratch_ = std::make_unique<ScratchDirectory>(std::move(*scratch));
    auto world = io::MakeRealWorld(io::IoBackend::kAuto);
    CAIRN_CHECK(world.ok());
    world_ = std::move(*world);
    Open({});
    uint32_t written = 0;
    for (const uint32_t i : ShuffledOrder(kRecords)) {
      sstable::WriteBatch batch = index_->NewBatch();
      CAIRN_CHECK(batch.Put(RecordKey(i), std::string(kValueBytes, 'v')).ok());
      index_->Apply(std::move(batch));
      if (++written % (kRecords / kFlushes) == 0) Flush(written);
    }
  }
  const sstable::LsmIndex& operator*() const { return *index_; }
  io::FileSystem& files() { return *world_.files; }
  uint64_t reads() const { return counters_.block_reads.load(); }

  // From now on nothing is in memory but the roots of the tables.
  void Forget() { Open(index_->live()); }
  // And now every block is.
  void Remember() {
    const auto all = index_->NewScan();
    for (all->Seek(""); all->valid(); all->Next()) DoNotOptimize(all->key());
  }

  std::string LargestTable() const {
    const auto live = index_->live();
    const auto largest = std::max_element(
        live.begin(), live.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    return sstable::IndexTablePath(scratch_->path(), largest->number);
  }

 private:
  void Open(const std::vector<sstable::LiveTable>& live) {
    index_ = nullptr;
    cache_ = std::make_unique<sstable::BlockCache>(kBlockCacheBytes);
    auto opened =
        sstable::LsmIndex::Open({.tables = {.files = world_.files.get(),
                                            .directory = scratch_->path(),
                                            .store = kStore,
                                            .cache = cache_.get(),
                                            .callbacks = &numbers_,
                                            .counters = &counters_},
                                 .shape = {.table_bytes = 8 << 20, .level1_bytes = 16 << 20}},
                                live);
    CAIRN_CHECK(opened.ok());
    index_ = std::move(*opened);
  }

  void Flush(uint64_t mark) {
    CAIRN_CHECK(index_->Freeze(mark).ok());
    CAIRN_CHECK(index_->Flush().ok());
    while (true) {
      const auto edit = index_->CompactOnce();
      CAIRN_CHECK(edit.ok());
      if (!*edit) return;
      index_->Release((*edit)->removed);
      CAIRN_CHECK(index_->DeleteReleased().ok());
    }
  }

  std::unique_ptr<ScratchDirectory> scratch_{};
  io::World world_{};
  Numbers numbers_{};
  sstable::TableCounters counters_{};
  std::unique_ptr<sstable::BlockCache> cache_{};
  std::unique_ptr<sstable::LsmIndex> index_{};
};

DiskIndex& SharedIndex() {
  static DiskIndex index;
  return index;
}

// Others each time, out of all that exist.
class Keys {
 public:
  const std::vector<std::string_view>& Next() {
    views_.clear();
    for (std::string& key : keys_) views_.emplace_back(key = RecordKey(random_() % kRecords));
    return views_;
  }

 private:
  std::mt19937_64 random_{1};
  std::vector<std::string> keys_ = std::vector<std::string>(kKeys);
  std::vector<std::string_view> views_{};
};

void LookUp(::benchmark::State& state, bool at_once, bool cold) {
  DiskIndex& index = SharedIndex();
  Keys keys;
  if (!cold) index.Remember();
  const uint64_t reads = index.reads();
  uint64_t of_opening = 0;
  {
    Meter meter(&state, kKeys, 0);
    for (auto _ : state) {
      meter.Pause();
      const std::vector<std::string_view>& wanted = keys.Next();
      if (cold) {
        const uint64_t before = index.reads();
        index.Forget();
        of_opening += index.reads() - before;
      }
      meter.Resume();
      if (at_once) {
        for (const auto& found : (*index).MultiGet(wanted)) {
          CAIRN_CHECK(found.ok() && found->has_value());
        }
      } else {
        for (const std::string_view key : wanted) {
          const auto found = (*index).Get(key);
          CAIRN_CHECK(found.ok() && found->has_value());
        }
      }
    }
  }
  state.counters["reads"] = static_cast<double>(index.reads() - reads - of_opening) /
                            static_cast<double>(state.iterations());
}

void RawReads(::benchmark::State& state, size_t bytes) {
  DiskIndex& index = SharedIndex();
  auto file = index.files().Open(index.LargestTable(), {.direct = true});
  if (Failed(&state, file.status())) return;
  const auto size = (*file)->Size();
  if (Failed(&state, size.status())) return;
  io::QueuePool queues(&index.files(), sstable::kLookupReads, 1);
  const AlignedBuffer into = AlignedBuffer::TryAllocate(
      Allocator::Default(), bytes * sstable::kLookupReads, io::kBlockBytes);
  std::vector<io::Request> requests(sstable::kLookupReads);
  std::mt19937_64 random(1);
  const Meter meter(&state, kKeys, 0);
  for (auto _ : state) {
    const io::QueuePool::Lease queue(&queues);
    for (uint32_t i = 0; i < kKeys + sstable::kLookupReads; ++i) {
      io::Request* request = &requests[i % sstable::kLookupReads];
      if (i >= sstable::kLookupReads) {
        request = queue->Reap();
        if (Failed(&state, request->status)) return;
      }
      if (i >= kKeys) continue;
      const size_t slot = static_cast<size_t>(request - requests.data());
      *request = {.kind = io::Request::Kind::kRead,
                  .file = file->get(),
                  .data = into.data() + slot * bytes,
                  .length = bytes,
                  .offset = random() % (*size / bytes) * bytes};
      queue->Submit(request);
    }
  }
}

}  // namespace

void RegisterLookups() {
  for (const bool cold : {false, true}) {
    const std::string how = cold ? "cold" : "warm";
    ::benchmark::RegisterBenchmark(("lookups/gets/" + how).c_str(), LookUp, false, cold)
        ->UseRealTime();
    ::benchmark::RegisterBenchmark(("lookups/multi_get/" + how).c_str(), LookUp, true, cold)
        ->UseRealTime();
  }
  for (const size_t bytes : {size_t{4} << 10, sstable::kIndexBlockBytes}) {
    ::benchmark::RegisterBenchmark(("lookups/raw_reads/bytes:" + std::to_string(bytes)).c_str(),
                                   RawReads, bytes)
        ->UseRealTime();
  }
}

}  // namespace cairn::bench::micro
