// SPDX-License-Identifier: Apache-2.0
//
// RocksDB with BlobDB: a value per chunk, large ones in blob files. As upstream advises: BlobDB for
// large values and one cache shared by blocks and blobs (wiki: BlobDB; advanced_options.h),
// IncreaseParallelism(cores), recycled write-ahead logs (fdatasync then need not update the inode),
// bytes_per_sync 1 MiB, bloom filters, index and filter blocks in the cache (options.h, table.h).
// No compression: KV does not pack without a codec of its own.

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/bench.h"
#include "tools/bench/peers/chunk_keys.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kMinBlobBytes = 4 << 10;
constexpr uint64_t kBytesPerSync = 1 << 20;
constexpr size_t kRecycledLogs = 4;
constexpr int kMaxMemtables = 4;

Status Check(const rocksdb::Status& status) {
  return status.ok() ? Status::Ok() : Status(StatusCode::kIoError, status.ToString());
}

rocksdb::Slice ToSlice(const ChunkKeys::Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

class RocksDbPeer : public Peer {
 public:
  explicit RocksDbPeer(PeerOptions options) : settings_(std::move(options)) {}

  Status Reopen() override {
    // A new cache, so that nothing is left in memory. Memtables are charged to it.
    const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(settings_.cache_bytes);
    rocksdb::Options options;
    options.create_if_missing = true;
    options.IncreaseParallelism(cores_);
    options.enable_blob_files = true;
    options.min_blob_size = kMinBlobBytes;
    options.blob_cache = cache;
    options.compression = rocksdb::kNoCompression;
    options.write_buffer_size = WriteBufferBytes();
    options.max_write_buffer_number = kMaxMemtables;
    options.write_buffer_manager =
        std::make_shared<rocksdb::WriteBufferManager>(settings_.hot_bytes, cache);
    options.recycle_log_file_num = kRecycledLogs;
    options.bytes_per_sync = kBytesPerSync;
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = cache;
    table.cache_index_and_filter_blocks = true;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    CAIRN_RETURN_IF_ERROR(Check(rocksdb::DB::Open(options, settings_.path, &db)));
    db_.reset(db);
    return Status::Ok();
  }

  Status Append(const Chunk& chunk, bool durable) override {
    rocksdb::WriteOptions write;
    write.sync = durable;
    const size_t bytes = GatherValue(chunk, chunk.scratch.data());
    const rocksdb::Slice value(reinterpret_cast<const char*>(chunk.scratch.data()), bytes);
    return Check(db_->Put(write, ToSlice(keys_.Of(chunk.session, chunk.index)), value));
  }

  Status Sync() override { return Check(db_->SyncWAL()); }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t, SessionId session) override {
    keys_.Fork(parent, chunks, session);
    return Status::Ok();
  }

  Status Restore(const RestoreTarget& target) override {
    rocksdb::PinnableSlice value;
    for (const Chunk& chunk : target.chunks) {
      const ChunkKeys::Key key = keys_.Of(target.session, chunk.index);
      CAIRN_RETURN_IF_ERROR(Check(
          db_->Get(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), ToSlice(key), &value)));
      CAIRN_CHECK(value.size() == chunk.value_bytes());
      ScatterValue(reinterpret_cast<const std::byte*>(value.data()), chunk);
      value.Reset();
    }
    return Status::Ok();
  }

  // Without forcing a flush that would not have come anyway.
  Status Settle() override {
    constexpr double kPatienceUs = 60e6;
    for (const double begin = NowUs(); NowUs() - begin < kPatienceUs;) {
      uint64_t busy = 0;
      for (const char* name : {"rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes",
                               "rocksdb.compaction-pending", "rocksdb.num-running-compactions"}) {
        uint64_t value = 0;
        if (db_->GetIntProperty(name, &value)) busy += value;
      }
      if (busy == 0) return Status::Ok();
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status(StatusCode::kDeadlineExceeded, "flushes and compactions after a minute");
  }

  Status FinishBackground() override {
    CAIRN_RETURN_IF_ERROR(Check(db_->Flush(rocksdb::FlushOptions())));
    return Settle();
  }

  Status Close() override {
    if (db_ == nullptr) return Status::Ok();
    const Status status = Check(db_->Close());
    db_.reset();
    return status;
  }

  nlohmann::json Settings() const override {
    return {{"version", rocksdb::GetRocksVersionAsString()},
            {"enable_blob_files", true},
            {"min_blob_size", kMinBlobBytes},
            {"compression", "none"},
            {"cache_bytes", settings_.cache_bytes},
            {"cache", "LRUCache shared by blocks, blobs and memtables; and the system's"},
            {"write_buffer_manager_bytes", settings_.hot_bytes},
            {"write_buffer_size", WriteBufferBytes()},
            {"max_write_buffer_number", kMaxMemtables},
            {"background_jobs", cores_},
            {"recycle_log_file_num", kRecycledLogs},
            {"bytes_per_sync", kBytesPerSync},
            {"bloom_bits", 10},
            {"durable", "WriteOptions::sync"},
            {"not_durable", "DB::Put, then DB::SyncWAL"}};
  }

 private:
  uint64_t WriteBufferBytes() const { return settings_.hot_bytes / kMaxMemtables; }

  const PeerOptions settings_;
  const int cores_ = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::unique_ptr<rocksdb::DB> db_{};
  ChunkKeys keys_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenRocksDbPeer(const PeerOptions& options) {
  return OpenPeer<RocksDbPeer>(options);
}

}  // namespace cairn::bench
