// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/peers/peer.h"

#include <cstring>

namespace cairn::bench {

std::vector<PeerKind> PeerKinds() {
  std::vector<PeerKind> kinds = {{"cairn", OpenCairnPeer, ""},
                                 {"chunk_files", OpenChunkFilesPeer, ""}};
#if CAIRN_BENCH_LMDB
  kinds.push_back({"lmdb", OpenLmdbPeer, ""});
#else
  kinds.push_back({"lmdb", nullptr, "not found when this was built (Debian: liblmdb-dev)"});
#endif
#if CAIRN_BENCH_LEVELDB
  kinds.push_back({"leveldb", OpenLevelDbPeer, ""});
#else
  kinds.push_back({"leveldb", nullptr, "not found when this was built (Debian: libleveldb-dev)"});
#endif
#if CAIRN_BENCH_ROCKSDB
  kinds.push_back({"rocksdb", OpenRocksDbPeer, ""});
#else
  kinds.push_back({"rocksdb", nullptr, "not found when this was built (Debian: librocksdb-dev)"});
#endif
#if CAIRN_BENCH_SQLITE
  kinds.push_back({"sqlite", OpenSqlitePeer, ""});
#else
  kinds.push_back({"sqlite", nullptr, "not found when this was built (Debian: libsqlite3-dev)"});
#endif
  return kinds;
}

size_t GatherValue(const Chunk& chunk, std::byte* into) {
  std::memcpy(into, chunk.ids.data(), chunk.ids.size_bytes());
  return chunk.ids.size_bytes() + Gather(chunk.pieces, into + chunk.ids.size_bytes());
}

size_t ScatterValue(const std::byte* value, const Chunk& chunk) {
  std::memcpy(chunk.ids.data(), value, chunk.ids.size_bytes());
  return chunk.ids.size_bytes() + Scatter(value + chunk.ids.size_bytes(), chunk.pieces);
}

}  // namespace cairn::bench
