// SPDX-License-Identifier: Apache-2.0
//
// The keys of chunks, for engines without branches: a fork finds shared chunks under its parent's
// keys.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "tools/bench/peers/peer.h"

namespace cairn::bench {

// Thread-safe.
class ChunkKeys {
 public:
  // Big-endian (session, index): chunks of a session lie side by side in key order.
  using Key = std::array<unsigned char, 16>;

  void Fork(SessionId parent, uint64_t chunks, SessionId session) {
    const std::lock_guard lock(mutex_);
    parents_[session] = {parent, chunks};
  }

  // The session that appended this chunk.
  SessionId OwnerOf(SessionId session, uint64_t index) const {
    const std::lock_guard lock(mutex_);
    for (auto at = parents_.find(session); at != parents_.end() && index < at->second.chunks;
         at = parents_.find(session)) {
      session = at->second.parent;
    }
    return session;
  }

  Key Of(SessionId session, uint64_t index) const {
    session = OwnerOf(session, index);
    Key key;
    for (int i = 0; i < 8; ++i) {
      key[7 - i] = static_cast<unsigned char>(session >> (8 * i));
      key[15 - i] = static_cast<unsigned char>(index >> (8 * i));
    }
    return key;
  }

 private:
  struct Shared {
    SessionId parent = 0;
    uint64_t chunks = 0;
  };
  mutable std::mutex mutex_;
  std::unordered_map<SessionId, Shared> parents_;
};

}  // namespace cairn::bench
