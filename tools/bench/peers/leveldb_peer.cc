// SPDX-License-Identifier: Apache-2.0
//
// LevelDB: a value per chunk, in the tables, which compaction rewrites: it has no blob files. As
// upstream advises: a larger write buffer for bulk loads and larger files for file systems that do
// better with them (options.h), a bloom filter and an LRU cache of uncompressed blocks, one batch
// and one sync for many updates (doc/index.md). No compression: KV does not pack without a codec of
// its own. Its Env maps tables, and a fault of a mapping reads ahead what the device is set to; for
// small sessions in random order tables are read with pread and POSIX_FADV_RANDOM instead, as
// RocksDB does by default. A session is read by an iterator, which hands out values where they lie;
// DB::Get copies each into a string.

#include <fcntl.h>
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/core/check.h"
#include "tools/bench/bench.h"
#include "tools/bench/peers/chunk_keys.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

constexpr size_t kMaxFileBytes = 64 << 20;  // Some tens of the large values; the default holds one.
constexpr int kBloomBits = 10;
constexpr uint64_t kMemtables = 2;  // One that is written and one that is flushed.

Status Check(const leveldb::Status& status) {
  return status.ok() ? Status::Ok() : Status(StatusCode::kIoError, status.ToString());
}

leveldb::Slice ToSlice(const ChunkKeys::Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

class RandomFile final : public leveldb::RandomAccessFile {
 public:
  explicit RandomFile(int fd) : fd_(fd) { posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM); }
  ~RandomFile() override { close(fd_); }
  leveldb::Status Read(uint64_t offset, size_t bytes, leveldb::Slice* result,
                       char* room) const override {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t count =
          pread(fd_, room + done, bytes - done, static_cast<off_t>(offset + done));
      if (count < 0) return leveldb::Status::IOError("pread", std::strerror(errno));
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    *result = leveldb::Slice(room, done);
    return leveldb::Status::OK();
  }

 private:
  const int fd_;
};

// LevelDB reports nowhere whether it works in the background. It asks its Env for that, one piece
// of work at a time, and for the next before the last one ends.
class PeerEnv final : public leveldb::EnvWrapper {
 public:
  explicit PeerEnv(bool random_reads)
      : EnvWrapper(leveldb::Env::Default()), random_reads_(random_reads) {}
  leveldb::Status NewRandomAccessFile(const std::string& path,
                                      leveldb::RandomAccessFile** file) override {
    if (!random_reads_) return EnvWrapper::NewRandomAccessFile(path, file);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return leveldb::Status::IOError(path, std::strerror(errno));
    *file = new RandomFile(fd);
    return leveldb::Status::OK();
  }
  void Schedule(void (*function)(void*), void* argument) override {
    ++under_way_;
    EnvWrapper::Schedule(Run, new Work{this, function, argument});
  }
  bool is_idle() const { return under_way_ == 0; }

 private:
  struct Work {
    PeerEnv* env;
    void (*function)(void*);
    void* argument;
  };
  static void Run(void* argument) {
    const std::unique_ptr<Work> work(static_cast<Work*>(argument));
    work->function(work->argument);
    --work->env->under_way_;
  }
  const bool random_reads_;
  std::atomic<int> under_way_{0};
};

class LevelDbPeer : public Peer {
 public:
  explicit LevelDbPeer(PeerOptions options)
      : settings_(std::move(options)), env_(settings_.random_reads) {}
  LevelDbPeer(const LevelDbPeer&) = delete;
  LevelDbPeer& operator=(const LevelDbPeer&) = delete;
  ~LevelDbPeer() override {
    if (const Status status = Close(); !status.ok()) return;  // Nobody is left to report to.
  }

  Status Reopen() override {
    cache_.reset(leveldb::NewLRUCache(settings_.cache_bytes - settings_.hot_bytes));
    leveldb::Options options;
    options.create_if_missing = true;
    options.env = &env_;
    options.compression = leveldb::kNoCompression;
    options.write_buffer_size = settings_.hot_bytes / kMemtables;
    options.max_file_size = kMaxFileBytes;
    options.block_cache = cache_.get();
    options.filter_policy = filter_.get();
    leveldb::DB* db = nullptr;
    CAIRN_RETURN_IF_ERROR(Check(leveldb::DB::Open(options, settings_.path, &db)));
    db_.reset(db);
    return Status::Ok();
  }

  // Chunks that are not durable yet wait in one batch. If they were written one by one, those in an
  // older log would not be synced by a later sync.
  Status Append(const Chunk& chunk, bool durable) override {
    const size_t bytes = GatherValue(chunk, chunk.scratch.data());
    const leveldb::Slice value(reinterpret_cast<const char*>(chunk.scratch.data()), bytes);
    const ChunkKeys::Key key = keys_.Of(chunk.session, chunk.index);
    if (!durable) {
      batch_.Put(ToSlice(key), value);
      return Status::Ok();
    }
    return Check(db_->Put(Durably(), ToSlice(key), value));
  }

  Status Sync() override {
    CAIRN_RETURN_IF_ERROR(Check(db_->Write(Durably(), &batch_)));
    batch_.Clear();
    return Status::Ok();
  }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t, SessionId session) override {
    keys_.Fork(parent, chunks, session);
    return Status::Ok();
  }

  Status Restore(const RestoreTarget& target) override {
    const std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(leveldb::ReadOptions()));
    for (const Chunk& chunk : target.chunks) {
      const ChunkKeys::Key key = keys_.Of(target.session, chunk.index);
      if (at->Valid()) at->Next();
      if (!at->Valid() || at->key() != ToSlice(key)) at->Seek(ToSlice(key));
      CAIRN_RETURN_IF_ERROR(Check(at->status()));
      CAIRN_CHECK(at->Valid() && at->key() == ToSlice(key));
      CAIRN_CHECK(at->value().size() == chunk.value_bytes());
      ScatterValue(reinterpret_cast<const std::byte*>(at->value().data()), chunk);
    }
    return Status::Ok();
  }

  // Without forcing a flush that would not have come anyway.
  Status Settle() override {
    constexpr double kPatienceUs = 120e6;
    for (const double begin = NowUs(); NowUs() - begin < kPatienceUs;) {
      if (env_.is_idle()) return Status::Ok();
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status(StatusCode::kDeadlineExceeded, "compactions after two minutes");
  }

  // CompactRange of a range without keys flushes the memtable and compacts nothing beyond what is
  // due.
  Status FinishBackground() override {
    const std::string beyond(2 * sizeof(ChunkKeys::Key), '\xff');
    const leveldb::Slice none(beyond);
    db_->CompactRange(&none, &none);
    return Settle();
  }

  Status Close() override {
    db_.reset();
    return Status::Ok();
  }

  nlohmann::json Settings() const override {
    return {{"version",
             std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion)},
            {"compression", "none"},
            {"write_buffer_size", settings_.hot_bytes / kMemtables},
            {"max_file_size", kMaxFileBytes},
            {"block_cache_bytes", settings_.cache_bytes - settings_.hot_bytes},
            {"cache", "LRUCache of blocks beside two memtables; and the system's"},
            {"bloom_bits", kBloomBits},
            {"read", settings_.random_reads ? "one iterator a restore, pread, POSIX_FADV_RANDOM"
                                            : "one iterator a restore, mmap"},
            {"durable", "WriteOptions::sync"},
            {"not_durable", "one WriteBatch for all, then written with WriteOptions::sync"}};
  }

 private:
  static leveldb::WriteOptions Durably() {
    leveldb::WriteOptions write;
    write.sync = true;
    return write;
  }

  const PeerOptions settings_;
  PeerEnv env_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_{
      leveldb::NewBloomFilterPolicy(kBloomBits)};
  std::unique_ptr<leveldb::Cache> cache_{};
  std::unique_ptr<leveldb::DB> db_{};  // Goes before what it uses.
  leveldb::WriteBatch batch_{};
  ChunkKeys keys_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenLevelDbPeer(const PeerOptions& options) {
  return OpenPeer<LevelDbPeer>(options);
}

}  // namespace cairn::bench
