// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/peers/session_kv.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"

namespace cairn::bench {

SessionKv::SessionKv(const KvPool& pool, uint64_t first_token, uint64_t chunk_tokens,
                     SessionId session, std::span<std::byte> scratch)
    : pool_(pool),
      chunk_tokens_(chunk_tokens),
      session_(session),
      scratch_(scratch),
      view_cursor_(pool, first_token),
      piece_cursor_(pool, first_token) {
  CAIRN_CHECK(scratch.size() >= chunk_tokens * (pool.model().token_bytes() + sizeof(TokenId)));
}

std::vector<Piece> SessionKv::PiecesOf(uint64_t position, uint64_t count) {
  std::vector<Piece> all, block;
  for (uint64_t at = position; at < position + count;) {
    const uint64_t next = std::min((at / kTokensPerBlock + 1) * kTokensPerBlock, position + count);
    ListPieces(pool_.model(), piece_cursor_.At(at, next - at), &block);
    std::sort(block.begin(), block.end(),
              [](const Piece& a, const Piece& b) { return a.data < b.data; });
    // Neighbours of one block are neighbours in every pool; blocks may be by chance.
    const size_t first = all.size();
    for (const Piece& piece : block) {
      if (all.size() > first && all.back().data + all.back().bytes == piece.data) {
        all.back().bytes += piece.bytes;
      } else {
        all.push_back(piece);
      }
    }
    at = next;
  }
  return all;
}

const Chunk& SessionKv::At(uint64_t index) {
  ids_.resize(chunk_tokens_);
  const uint64_t position = index * chunk_tokens_;
  for (uint64_t i = 0; i < chunk_tokens_; ++i) ids_[i] = TokenAt(position + i);
  pieces_.assign(1, PiecesOf(position, chunk_tokens_));
  chunks_.assign(1, {.session = session_,
                     .index = index,
                     .ids = ids_,
                     .view = &view_cursor_.At(position, chunk_tokens_),
                     .pieces = pieces_[0],
                     .kv_bytes = chunk_tokens_ * pool_.model().token_bytes(),
                     .scratch = scratch_});
  return chunks_[0];
}

const RestoreTarget& SessionKv::Whole(uint64_t chunks) {
  ids_.assign(chunks * chunk_tokens_, 0);
  pieces_.clear();
  for (uint64_t i = 0; i < chunks; ++i) {
    pieces_.push_back(PiecesOf(i * chunk_tokens_, chunk_tokens_));
  }
  chunks_.clear();
  for (uint64_t i = 0; i < chunks; ++i) {
    chunks_.push_back({.session = session_,
                       .index = i,
                       .ids = std::span(ids_).subspan(i * chunk_tokens_, chunk_tokens_),
                       .pieces = pieces_[i],
                       .kv_bytes = chunk_tokens_ * pool_.model().token_bytes(),
                       .scratch = scratch_});
  }
  target_ = {.session = session_,
             .ids = ids_,
             .view = &view_cursor_.At(0, ids_.size()),
             .chunks = chunks_};
  return target_;
}

Status SessionKv::CheckRestored(SessionKv& source, uint64_t chunks) {
  const uint64_t tokens = chunks * chunk_tokens_;
  CAIRN_CHECK(tokens <= ids_.size());
  for (uint64_t i = 0; i < tokens; ++i) {
    if (ids_[i] != TokenAt(i)) {
      return Status(StatusCode::kCorruption, "restored token " + std::to_string(i) + " differs");
    }
  }
  std::vector<Piece> got, want;
  const size_t row = pool_.model().groups[0].planes[0].row_bytes;
  ListPieces(pool_.model(), piece_cursor_.At(0, tokens), &got, row);
  ListPieces(pool_.model(), source.piece_cursor_.At(0, tokens), &want, row);
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(got[i].data, want[i].data, row) != 0) {
      return Status(StatusCode::kCorruption, "restored row " + std::to_string(i) + " differs");
    }
  }
  return Status::Ok();
}

AlignedBuffer MakeScratch(const ModelSpec& model, uint64_t chunk_tokens) {
  const uint64_t bytes = chunk_tokens * (model.token_bytes() + sizeof(TokenId));
  AlignedBuffer buffer = AlignedBuffer::TryAllocate(Allocator::Default(), bytes, 4096);
  CAIRN_CHECK(!buffer.empty());
  std::memset(buffer.data(), 0, buffer.size());
  return buffer;
}

}  // namespace cairn::bench
