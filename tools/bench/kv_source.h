// SPDX-License-Identifier: Apache-2.0
//
// KV memory as serving engines lay it out, and views on it. Appends gather from it, restores
// scatter into it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/core/aligned_buffer.h"
#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::bench {

// One full-attention group whose tokens hold `token_bytes` of KV: 2 KiB, 8 KiB or 128 KiB (the
// shape of Llama-3-8B); 0: a tree of token ids. kInvalidArgument for other sizes.
Result<ModelSpec> ModelOfTokenBytes(uint64_t token_bytes);

enum class Layout {
  kNhd,         // Blocks of 16 tokens, [slot][head][row]: a token's heads are adjacent.
  kHnd,         // Blocks of 16 tokens, [head][slot][row]: a head's tokens are adjacent.
  kTokenMajor,  // [token][layer][plane][head][row], no table: a token is one piece.
};
Result<Layout> ParseLayout(const std::string& name);  // "nhd", "hnd", "token-major"

inline constexpr uint32_t kTokensPerBlock = 16;

// Memory for `tokens` positions (a multiple of 16) of a model with one group, touched and filled
// with random bf16 values that are distributed as KV is. Blocks are used in shuffled order, as a
// serving engine's allocator leaves them.
class KvPool {
 public:
  KvPool(const ModelSpec& model, Layout layout, uint64_t tokens, uint64_t seed);
  const ModelSpec& model() const { return model_; }
  Layout layout() const { return layout_; }
  uint64_t tokens() const { return tokens_; }
  std::span<std::byte> bytes() const { return memory_.span(); }
  int32_t block(uint64_t index) const { return block_order_[index % block_order_.size()]; }

 private:
  ModelSpec model_;
  Layout layout_;
  uint64_t tokens_;
  AlignedBuffer memory_;
  std::vector<int32_t> block_order_;
};

// A view that moves over a pool. Position p is at the pool's token (p + first_token) modulo its
// size. Owns the arrays that its view names; one thread at a time.
class KvCursor {
 public:
  // `first_token`: a multiple of 16.
  KvCursor(const KvPool& pool, uint64_t first_token);
  KvCursor(const KvCursor&) = delete;  // The view points into this object.
  KvCursor& operator=(const KvCursor&) = delete;
  // Positions [position, position + count); valid until the next call. Token-major views must not
  // cross the end of the pool.
  const KvView& At(uint64_t position, uint64_t count);

 private:
  const KvPool& pool_;
  uint64_t first_token_;
  std::vector<std::vector<std::byte*>> bases_;  // By plane, then by layer.
  std::vector<PlaneView> planes_;
  std::vector<int32_t> table_;
  GroupView group_;
  KvView view_;
};

struct Piece {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The memory of a view in canonical order [layer][plane][head][position]; what is adjacent is one
// piece, of at most `max_bytes`.
void ListPieces(const ModelSpec& model, const KvView& view, std::vector<Piece>* pieces,
                size_t max_bytes = SIZE_MAX);

// memcpy per piece. The bytes copied.
size_t Gather(std::span<const Piece> pieces, std::byte* into);
size_t Scatter(const std::byte* from, std::span<const Piece> pieces);

}  // namespace cairn::bench
