// SPDX-License-Identifier: Apache-2.0
//
// A session's chunks in paged KV memory, described both ways: as a view for stores, and as pieces
// for engines that copy values themselves.
#pragma once

#include <memory>
#include <vector>

#include "tools/bench/fixture.h"
#include "tools/bench/peers/peer.h"

namespace cairn::bench {

// Memory that one thread appends from or restores to. `pool` and `scratch` are the caller's.
class SessionKv {
 public:
  // Position p lies at the pool's token p + first_token. `first_token`: a multiple of 16.
  SessionKv(const KvPool& pool, uint64_t first_token, uint64_t chunk_tokens, SessionId session,
            std::span<std::byte> scratch);

  // Describes a chunk, with the token ids of its positions; valid until the next call.
  const Chunk& At(uint64_t index);
  // Describes the first `chunks` chunks as one target, its ids cleared; valid until the next call.
  const RestoreTarget& Whole(uint64_t chunks);
  // Whether what Whole described holds what `source`, another pool, has there. kCorruption if not.
  Status CheckRestored(SessionKv& source, uint64_t chunks);

 private:
  // Block by block, each in order of address: the same order in every pool of one layout.
  std::vector<Piece> PiecesOf(uint64_t position, uint64_t count);

  const KvPool& pool_;
  const uint64_t chunk_tokens_;
  const SessionId session_;
  const std::span<std::byte> scratch_;
  KvCursor view_cursor_, piece_cursor_;
  std::vector<TokenId> ids_{};
  std::vector<std::vector<Piece>> pieces_{};  // A list a chunk.
  std::vector<Chunk> chunks_{};
  RestoreTarget target_{};
};

// Room for one value of `chunk_tokens` tokens.
AlignedBuffer MakeScratch(const ModelSpec& model, uint64_t chunk_tokens);

}  // namespace cairn::bench
