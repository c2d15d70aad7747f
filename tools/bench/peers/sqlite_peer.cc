// SPDX-License-Identifier: Apache-2.0
//
// SQLite: one table of blobs, keyed by (session, chunk) in its row id, so that a chunk is found in
// one tree; prepared statements. As upstream advises: WAL, where a commit is one sequential write
// (wal.html), synchronous=FULL, without which a commit may be lost with the power
// (pragma.html#pragma_synchronous), pages larger than 4 KiB for large blobs (intern-v-extern-blob:
// 8 or 16 KiB), mmap_size for reads (mmap.html), though not of small sessions in random order, and
// incremental reads of blobs, which need no buffer of SQLite's own (c3ref/blob_open.html).
// Checkpoints come by themselves, within a commit, when the log is as large as what the other
// engines keep of what was written last.

#include <sqlite3.h>

#include <filesystem>
#include <mutex>

#include "base/core/check.h"
#include "tools/bench/peers/chunk_keys.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kPageBytes = 16 << 10;
constexpr uint64_t kMmapBytes = uint64_t{64} << 30;  // The library's own limit is below it.
constexpr int kIndexBits = 32;                       // Low bits of a row id; the rest: the session.

class SqlitePeer : public Peer {
 public:
  explicit SqlitePeer(PeerOptions options) : options_(std::move(options)) {}
  SqlitePeer(const SqlitePeer&) = delete;
  SqlitePeer& operator=(const SqlitePeer&) = delete;
  ~SqlitePeer() override {
    if (const Status status = Close(); !status.ok()) return;  // Nobody is left to report to.
  }

  Status Reopen() override {
    std::filesystem::create_directories(options_.path);
    const int code =
        sqlite3_open_v2((options_.path + "/chunks.sqlite").c_str(), &db_,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    CAIRN_RETURN_IF_ERROR(Check(code, "open"));
    for (const std::string& pragma :
         {"page_size=" + std::to_string(kPageBytes), std::string("journal_mode=WAL"),
          std::string("synchronous=FULL"), "mmap_size=" + std::to_string(MmapBytes()),
          "cache_size=-" + std::to_string(options_.cache_bytes >> 10),
          "wal_autocheckpoint=" + std::to_string(CheckpointPages())}) {
      CAIRN_RETURN_IF_ERROR(Execute("PRAGMA " + pragma));
    }
    CAIRN_RETURN_IF_ERROR(
        Execute("CREATE TABLE IF NOT EXISTS chunks(id INTEGER PRIMARY KEY, "
                "value BLOB NOT NULL)"));
    const char kInsert[] = "INSERT INTO chunks(id, value) VALUES(?1, ?2)";
    return Check(sqlite3_prepare_v3(db_, kInsert, sizeof(kInsert), SQLITE_PREPARE_PERSISTENT,
                                    &insert_, nullptr),
                 "prepare");
  }

  // One writer at a time, as everywhere in SQLite; gathering is done beside it. Chunks that are not
  // durable yet stay in one open transaction.
  Status Append(const Chunk& chunk, bool durable) override {
    const size_t bytes = GatherValue(chunk, chunk.scratch.data());
    const std::lock_guard lock(mutex_);
    if (!durable && !in_batch_) {
      CAIRN_RETURN_IF_ERROR(Execute("BEGIN"));
      in_batch_ = true;
    }
    CAIRN_RETURN_IF_ERROR(
        Check(sqlite3_bind_int64(insert_, 1, RowOf(chunk.session, chunk.index)), "bind"));
    CAIRN_RETURN_IF_ERROR(
        Check(sqlite3_bind_blob64(insert_, 2, chunk.scratch.data(), bytes, SQLITE_STATIC), "bind"));
    const int code = sqlite3_step(insert_);
    CAIRN_RETURN_IF_ERROR(Check(sqlite3_reset(insert_), "insert"));
    return code == SQLITE_DONE ? Status::Ok() : Check(code, "insert");
  }

  Status Sync() override {
    if (!in_batch_) return Status::Ok();
    in_batch_ = false;
    return Execute("COMMIT");
  }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t, SessionId session) override {
    keys_.Fork(parent, chunks, session);
    return Status::Ok();
  }

  Status Restore(const RestoreTarget& target) override {
    sqlite3_blob* blob = nullptr;
    Status status;
    for (size_t i = 0; i < target.chunks.size() && status.ok(); ++i) {
      const Chunk& chunk = target.chunks[i];
      const int64_t row = RowOf(target.session, chunk.index);
      status = blob == nullptr
                   ? Check(sqlite3_blob_open(db_, "main", "chunks", "value", row, 0, &blob), "open")
                   : Check(sqlite3_blob_reopen(blob, row), "reopen");
      if (!status.ok()) break;
      const int bytes = sqlite3_blob_bytes(blob);
      CAIRN_CHECK(static_cast<uint64_t>(bytes) == chunk.value_bytes());
      status = Check(sqlite3_blob_read(blob, chunk.scratch.data(), bytes, 0), "read");
      if (status.ok()) ScatterValue(chunk.scratch.data(), chunk);
    }
    const Status closed = Check(sqlite3_blob_close(blob), "close of a blob");
    return status.ok() ? closed : status;
  }

  Status Settle() override { return Status::Ok(); }  // It has no threads.

  Status FinishBackground() override {
    return Check(sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_FULL, nullptr, nullptr),
                 "checkpoint");
  }

  Status Close() override {
    if (db_ == nullptr) return Status::Ok();
    CAIRN_RETURN_IF_ERROR(Sync());
    sqlite3_finalize(std::exchange(insert_, nullptr));
    const int code = sqlite3_close(db_);
    if (code == SQLITE_OK) db_ = nullptr;
    return Check(code, "close");
  }

  nlohmann::json Settings() const override {
    return {{"version", sqlite3_libversion()},
            {"journal_mode", "WAL"},
            {"synchronous", "FULL"},
            {"page_size", kPageBytes},
            {"mmap_size", MmapBytes()},
            {"cache_bytes", options_.cache_bytes},
            {"cache", "pages of its own; and the system's, not bounded"},
            {"wal_autocheckpoint_pages", CheckpointPages()},
            {"table", "chunks(id INTEGER PRIMARY KEY, value BLOB), id of session and chunk"},
            {"read", "sqlite3_blob_read"},
            {"durable", "a transaction an append"},
            {"not_durable", "one transaction for all, then COMMIT"}};
  }

 private:
  Status Check(int code, const char* call) const {
    if (code == SQLITE_OK) return Status::Ok();
    const char* const what = db_ != nullptr ? sqlite3_errmsg(db_) : sqlite3_errstr(code);
    return Status(StatusCode::kIoError, std::string("sqlite: ") + call + ": " + what);
  }

  Status Execute(const std::string& sql) {
    return Check(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), sql.c_str());
  }

  // A fault of a mapping reads ahead far more than one small session.
  uint64_t MmapBytes() const { return options_.random_reads ? 0 : kMmapBytes; }
  uint64_t CheckpointPages() const { return options_.hot_bytes / kPageBytes; }

  int64_t RowOf(SessionId session, uint64_t index) const {
    const SessionId owner = keys_.OwnerOf(session, index);
    CAIRN_CHECK(index >> kIndexBits == 0 && owner >> (63 - kIndexBits) == 0);
    return static_cast<int64_t>(owner << kIndexBits | index);
  }

  const PeerOptions options_;
  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  std::mutex mutex_{};  // Guards the connection, for Append.
  bool in_batch_ = false;
  ChunkKeys keys_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenSqlitePeer(const PeerOptions& options) {
  return OpenPeer<SqlitePeer>(options);
}

}  // namespace cairn::bench
