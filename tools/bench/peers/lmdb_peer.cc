// SPDX-License-Identifier: Apache-2.0
//
// LMDB: a value per chunk, written into the page that will hold it (MDB_RESERVE), a transaction a
// durable append. lmdb.h advises: MDB_WRITEMAP is slower for databases larger than memory and gives
// up protection, so it is off; MDB_NOMEMINIT saves a pass where contents need not be hidden;
// MDB_NORDAHEAD may help random reads. MDB_NOSYNC and MDB_NOMETASYNC lose durability. Its cache is
// the system's. Before a value of several pages is read the kernel is asked for all of it: without
// that every window of a mapping is waited for in turn.

#include <lmdb.h>
#include <sys/mman.h>

#include <filesystem>

#include "base/core/check.h"
#include "tools/bench/peers/chunk_keys.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {
namespace {

constexpr size_t kMapBytes = size_t{64} << 30;  // Address space; the file grows as needed.
constexpr size_t kPrefetchBytes = 8 << 10;      // From this size of a value on: more than a page.

Status Check(int code, const char* call) {
  if (code == 0) return Status::Ok();
  return Status(StatusCode::kIoError, std::string(call) + ": " + mdb_strerror(code));
}

MDB_val ToValue(ChunkKeys::Key& key) { return {key.size(), key.data()}; }

class LmdbPeer : public Peer {
 public:
  explicit LmdbPeer(PeerOptions options) : options_(std::move(options)) {}
  LmdbPeer(const LmdbPeer&) = delete;
  LmdbPeer& operator=(const LmdbPeer&) = delete;
  ~LmdbPeer() override {
    if (const Status status = Close(); !status.ok()) return;  // Nobody is left to report to.
  }

  Status Reopen() override {
    std::filesystem::create_directories(options_.path);
    CAIRN_RETURN_IF_ERROR(Check(mdb_env_create(&env_), "mdb_env_create"));
    CAIRN_RETURN_IF_ERROR(Check(mdb_env_set_mapsize(env_, kMapBytes), "mdb_env_set_mapsize"));
    CAIRN_RETURN_IF_ERROR(
        Check(mdb_env_open(env_, options_.path.c_str(), Flags(), 0644), "mdb_env_open"));
    MDB_txn* txn = nullptr;
    CAIRN_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, 0, &txn), "mdb_txn_begin"));
    CAIRN_RETURN_IF_ERROR(Check(mdb_dbi_open(txn, nullptr, 0, &table_), "mdb_dbi_open"));
    return Check(mdb_txn_commit(txn), "mdb_txn_commit");
  }

  // Chunks that are not durable yet stay in one open transaction: LMDB's way to be fast.
  Status Append(const Chunk& chunk, bool durable) override {
    if (!durable) {
      if (batch_ == nullptr) {
        CAIRN_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, 0, &batch_), "mdb_txn_begin"));
      }
      return Put(batch_, chunk);
    }
    MDB_txn* txn = nullptr;
    CAIRN_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, 0, &txn), "mdb_txn_begin"));
    if (const Status status = Put(txn, chunk); !status.ok()) {
      mdb_txn_abort(txn);
      return status;
    }
    return Check(mdb_txn_commit(txn), "mdb_txn_commit");
  }

  Status Sync() override {
    if (batch_ == nullptr) return Status::Ok();
    return Check(mdb_txn_commit(std::exchange(batch_, nullptr)), "mdb_txn_commit");
  }

  Status Fork(SessionId parent, uint64_t chunks, uint64_t, SessionId session) override {
    keys_.Fork(parent, chunks, session);
    return Status::Ok();
  }

  Status Restore(const RestoreTarget& target) override {
    MDB_txn* txn = nullptr;
    CAIRN_RETURN_IF_ERROR(Check(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn), "mdb_txn_begin"));
    Status status;
    MDB_val next{};
    for (size_t i = 0; i < target.chunks.size() && status.ok(); ++i) {
      if (i == 0) status = Find(txn, target.session, 0, &next);
      const MDB_val value = next;
      if (status.ok() && i + 1 < target.chunks.size()) {
        status = Find(txn, target.session, i + 1, &next);
      }
      if (status.ok()) {
        CAIRN_CHECK(value.mv_size == target.chunks[i].value_bytes());
        ScatterValue(static_cast<const std::byte*>(value.mv_data), target.chunks[i]);
      }
    }
    mdb_txn_abort(txn);
    return status;
  }

  Status Settle() override { return Status::Ok(); }  // It has no threads.
  Status FinishBackground() override { return Status::Ok(); }

  Status Close() override {
    CAIRN_RETURN_IF_ERROR(Sync());
    if (env_ != nullptr) mdb_env_close(std::exchange(env_, nullptr));
    return Status::Ok();
  }

  nlohmann::json Settings() const override {
    return {{"version", mdb_version(nullptr, nullptr, nullptr)},
            {"flags", options_.random_reads ? "MDB_NOMEMINIT|MDB_NORDAHEAD" : "MDB_NOMEMINIT"},
            {"put", "MDB_RESERVE"},
            {"mapsize", kMapBytes},
            {"prefetch", "madvise(MADV_WILLNEED) of the next value, from 8 KiB on"},
            {"cache", "the system's, not bounded"},
            {"durable", "mdb_txn_commit"},
            {"not_durable", "one transaction, then mdb_txn_commit"}};
  }

 private:
  unsigned Flags() const {
    return MDB_NOMEMINIT | (options_.random_reads ? unsigned{MDB_NORDAHEAD} : 0U);
  }

  Status Put(MDB_txn* txn, const Chunk& chunk) {
    ChunkKeys::Key bytes = keys_.Of(chunk.session, chunk.index);
    MDB_val key = ToValue(bytes), value{chunk.value_bytes(), nullptr};
    CAIRN_RETURN_IF_ERROR(Check(mdb_put(txn, table_, &key, &value, MDB_RESERVE), "mdb_put"));
    GatherValue(chunk, static_cast<std::byte*>(value.mv_data));
    return Status::Ok();
  }

  // Also has it read ahead.
  Status Find(MDB_txn* txn, SessionId session, uint64_t index, MDB_val* value) {
    constexpr uintptr_t kPage = 4096;
    ChunkKeys::Key bytes = keys_.Of(session, index);
    MDB_val key = ToValue(bytes);
    CAIRN_RETURN_IF_ERROR(Check(mdb_get(txn, table_, &key, value), "mdb_get"));
    if (value->mv_size >= kPrefetchBytes) {
      const auto begin = reinterpret_cast<uintptr_t>(value->mv_data) / kPage * kPage;
      const auto end = reinterpret_cast<uintptr_t>(value->mv_data) + value->mv_size;
      madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
    }
    return Status::Ok();
  }

  const PeerOptions options_;
  MDB_env* env_ = nullptr;
  MDB_dbi table_ = 0;
  MDB_txn* batch_ = nullptr;
  ChunkKeys keys_{};
};

}  // namespace

Result<std::unique_ptr<Peer>> OpenLmdbPeer(const PeerOptions& options) {
  return OpenPeer<LmdbPeer>(options);
}

}  // namespace cairn::bench
