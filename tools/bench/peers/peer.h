// SPDX-License-Identifier: Apache-2.0
//
// The alternatives to Cairn, behind one small interface: append a chunk of a session's state,
// branch off, restore chunks. Every engine gets the same memory to read from and write to, the same
// durability and the same cache budget.
//
// Engines without branches are used as their users do: a chunk is found by a key of its own, and a
// branch refers to the keys of shared chunks. So a fork costs them nothing on disk either, if it
// falls between chunks; the benchmarks fork nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tools/bench/kv_source.h"

namespace cairn::bench {

using SessionId = uint64_t;  // Chosen by the caller; each is used for one session or fork.

// Chunk `index` of a session: the content of one append, and of one key. All chunks of a session
// hold the same number of tokens. The caller owns all memory that it names.
struct Chunk {
  SessionId session = 0;
  uint64_t index = 0;
  std::span<TokenId> ids{};
  const KvView* view = nullptr;     // Its KV as a store sees it...
  std::span<const Piece> pieces{};  // ...and as it lies, in the fewest pieces.
  uint64_t kv_bytes = 0;
  // Room for a whole value, ids and KV, aligned to 4096, for engines that want it in one piece.
  std::span<std::byte> scratch{};

  uint64_t value_bytes() const { return ids.size_bytes() + kv_bytes; }
};

// Several chunks of one session from the first on, and where to put them.
struct RestoreTarget {
  SessionId session = 0;
  std::span<TokenId> ids{};
  const KvView* view = nullptr;
  std::span<const Chunk> chunks{};  // Parts of the same memory.
};

struct PeerOptions {
  std::string path{};  // A directory that does not exist yet, or was left by the same engine.
  ModelSpec model{};
  uint64_t cache_bytes = 1ull << 30;  // All that the engine may keep in memory of its own.
  uint64_t hot_bytes = 256ull << 20;  // The part of these for the newest data.
  uint64_t segment_bytes = 64ull << 20;
  uint32_t spare_segments = 16;
  uint64_t log_bytes = 1ull << 30;  // The log's limit, before it is packed away.
  bool random_reads = false;        // Small sessions in random order, instead of whole large ones.
};

// Append may be called by several threads at once, for different sessions; the rest by one.
class Peer {
 public:
  virtual ~Peer() = default;
  // Chunks of a session come in order. `durable`: it survives power loss when this returns; else
  // when Sync has.
  virtual Status Append(const Chunk& chunk, bool durable) = 0;
  virtual Status Sync() = 0;
  // `session` becomes a session that begins with the first `chunks` chunks of `parent`, each of
  // `chunk_tokens` tokens. Durable together with the first append to it.
  virtual Status Fork(SessionId parent, uint64_t chunks, uint64_t chunk_tokens,
                      SessionId session) = 0;
  virtual Status Restore(const RestoreTarget& target) = 0;
  // Waits until nothing is written in the background, so that the next arm has the device alone.
  virtual Status Settle() = 0;
  // Does everything that the engine has deferred: appended data lies where it stays, and nothing
  // runs in the background any more.
  virtual Status FinishBackground() = 0;
  virtual Status Close() = 0;
  // After Close: sessions exist as they were. Nothing is in the engine's own memory.
  virtual Status Reopen() = 0;
  virtual nlohmann::json Settings() const = 0;
};

struct PeerKind {
  std::string name{};
  using Open = Result<std::unique_ptr<Peer>> (*)(const PeerOptions& options);
  Open open = nullptr;       // Null: not in this build.
  std::string why_absent{};  // Then: for people.
};
// Cairn first, then all peers, those absent from this build too.
std::vector<PeerKind> PeerKinds();

template <typename Engine>
Result<std::unique_ptr<Peer>> OpenPeer(const PeerOptions& options) {
  auto peer = std::make_unique<Engine>(options);
  CAIRN_RETURN_IF_ERROR(peer->Reopen());
  return std::unique_ptr<Peer>(std::move(peer));
}
Result<std::unique_ptr<Peer>> OpenCairnPeer(const PeerOptions& options);
Result<std::unique_ptr<Peer>> OpenChunkFilesPeer(const PeerOptions& options);
Result<std::unique_ptr<Peer>> OpenLevelDbPeer(const PeerOptions& options);
Result<std::unique_ptr<Peer>> OpenLmdbPeer(const PeerOptions& options);
Result<std::unique_ptr<Peer>> OpenRocksDbPeer(const PeerOptions& options);
Result<std::unique_ptr<Peer>> OpenSqlitePeer(const PeerOptions& options);

// ids, then KV piece by piece; and back. The bytes moved.
size_t GatherValue(const Chunk& chunk, std::byte* into);
size_t ScatterValue(const std::byte* value, const Chunk& chunk);

}  // namespace cairn::bench
