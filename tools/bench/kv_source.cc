// SPDX-License-Identifier: Apache-2.0

#include "tools/bench/kv_source.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "base/core/check.h"

namespace cairn::bench {
namespace {

struct Strides {
  int64_t base = 0;  // From one (layer, plane) to the next.
  int64_t block = 0, token = 0, head = 0;
};

// All planes of a full-attention group are alike.
Strides StridesOf(const LayerGroup& group, Layout layout, uint64_t tokens) {
  const auto row = static_cast<int64_t>(group.planes[0].row_bytes);
  const int64_t token = row * group.planes[0].heads;
  const int64_t block = token * kTokensPerBlock;
  const int64_t array = token * static_cast<int64_t>(tokens);
  switch (layout) {
    case Layout::kNhd: return {array, block, token, row};
    case Layout::kHnd: return {array, block, row, row * kTokensPerBlock};
    case Layout::kTokenMajor: return {token, 0, static_cast<int64_t>(group.token_bytes()), row};
  }
  return {};
}

}  // namespace

Result<ModelSpec> ModelOfTokenBytes(uint64_t token_bytes) {
  ModelSpec model;
  model.identity.name = "bench-" + std::to_string(token_bytes);
  switch (token_bytes) {
    case 0: return model;
    case 2048: model.groups = {LayerGroup::FullAttention(4, 1, 128, Dtype::kBf16)}; break;
    case 8192: model.groups = {LayerGroup::FullAttention(8, 2, 128, Dtype::kBf16)}; break;
    case 131072: model.groups = {LayerGroup::FullAttention(32, 8, 128, Dtype::kBf16)}; break;
    default:
      return Status(
          StatusCode::kInvalidArgument,
          "KV bytes of a token: 2048, 8192 or 131072, not " + std::to_string(token_bytes));
  }
  CAIRN_CHECK(model.token_bytes() == token_bytes);
  return model;
}

Result<Layout> ParseLayout(const std::string& name) {
  if (name == "nhd") return Layout::kNhd;
  if (name == "hnd") return Layout::kHnd;
  if (name == "token-major") return Layout::kTokenMajor;
  return Status(StatusCode::kInvalidArgument, "layout: nhd, hnd or token-major, not " + name);
}

KvPool::KvPool(const ModelSpec& model, Layout layout, uint64_t tokens, uint64_t seed)
    : model_(model), layout_(layout), tokens_(tokens) {
  CAIRN_CHECK(model.groups.size() == 1 && tokens > 0 && tokens % kTokensPerBlock == 0);
  const uint64_t size = tokens * model.token_bytes();
  memory_ = AlignedBuffer::TryAllocate(Allocator::Default(), size, 2 << 20);
  CAIRN_CHECK(!memory_.empty());
  std::mt19937_64 random(seed);
  // Bf16 values as KV has them: normally distributed, the channels of different scale, so that a
  // codec finds what it would find in real ones. Drawn from a table, since gigabytes are needed.
  std::vector<uint16_t> normal(1 << 16);
  std::normal_distribution<float> distribution;
  for (uint16_t& value : normal) {
    value = static_cast<uint16_t>(std::bit_cast<uint32_t>(distribution(random)) >> 16);
  }
  auto* values = reinterpret_cast<uint16_t*>(memory_.data());
  const uint64_t channels = model.groups[0].planes[0].row_bytes / sizeof(uint16_t);
  for (uint64_t i = 0; i < size / sizeof(uint16_t); i += 4) {
    uint64_t draw = random();
    for (uint64_t j = i; j < i + 4; ++j, draw >>= 16) {
      const auto halvings = static_cast<uint16_t>(j % channels % 4);  // Exponents, bits 7 to 14.
      values[j] = static_cast<uint16_t>(normal[draw & 0xFFFF] - (halvings << 7));
    }
  }
  for (uint64_t i = 0; i < tokens / kTokensPerBlock; ++i) {
    block_order_.push_back(static_cast<int32_t>(i));
  }
  std::shuffle(block_order_.begin(), block_order_.end(), random);
}

KvCursor::KvCursor(const KvPool& pool, uint64_t first_token)
    : pool_(pool), first_token_(first_token) {
  CAIRN_CHECK(first_token % kTokensPerBlock == 0);
  const LayerGroup& group = pool.model().groups[0];
  const Strides strides = StridesOf(group, pool.layout(), pool.tokens());
  bases_.resize(group.planes.size());
  for (uint32_t layer = 0; layer < group.layers; ++layer) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const auto index = static_cast<int64_t>(layer * group.planes.size() + plane);
      bases_[plane].push_back(pool.bytes().data() + index * strides.base);
    }
  }
  for (auto& bases : bases_) {
    planes_.push_back({.layer_bases = bases,
                       .block_stride = strides.block,
                       .token_stride = strides.token,
                       .head_stride = strides.head});
  }
  group_.planes = planes_;
  view_.groups = {&group_, 1};
}

const KvView& KvCursor::At(uint64_t position, uint64_t count) {
  const uint64_t token = (position + first_token_) % pool_.tokens();
  if (pool_.layout() == Layout::kTokenMajor) {
    CAIRN_CHECK(token + count <= pool_.tokens());
    const uint64_t old = group_.count == 0 ? 0 : (group_.position + first_token_) % pool_.tokens();
    const int64_t move =
        (static_cast<int64_t>(token) - static_cast<int64_t>(old)) * planes_[0].token_stride;
    for (auto& bases : bases_) {
      for (std::byte*& base : bases) base += move;
    }
  } else {
    // A pool is a whole number of blocks, so the slot within a block depends on the position alone.
    const uint64_t skipped = position % kTokensPerBlock;
    const uint64_t blocks = (skipped + count + kTokensPerBlock - 1) / kTokensPerBlock;
    table_.clear();
    for (uint64_t i = 0; i < blocks; ++i) {
      table_.push_back(pool_.block((position + first_token_) / kTokensPerBlock + i));
    }
    group_.tokens_per_block = kTokensPerBlock;
    group_.table = {.kind = TableKind::kBlocks,
                    .entries = table_.data(),
                    .count = table_.size(),
                    .table_position = position - skipped};
  }
  group_.position = position;
  group_.count = count;
  return view_;
}

void ListPieces(const ModelSpec& model, const KvView& view, std::vector<Piece>* pieces,
                size_t max_bytes) {
  pieces->clear();
  const GroupView& group = view.groups[0];
  const LayerGroup& shape = model.groups[0];
  std::vector<int64_t> token_offsets;  // One per position, before the head is added.
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (size_t p = 0; p < shape.planes.size(); ++p) {
      const PlaneView& plane = group.planes[p];
      token_offsets.clear();
      for (uint64_t i = 0; i < group.count; ++i) {
        if (group.table.kind == TableKind::kNone) {
          token_offsets.push_back(static_cast<int64_t>(i) * plane.token_stride);
          continue;
        }
        const uint64_t from_table = group.position + i - group.table.table_position;
        const int32_t block =
            static_cast<const int32_t*>(group.table.entries)[from_table / group.tokens_per_block];
        const auto slot = static_cast<int64_t>(from_table % group.tokens_per_block);
        token_offsets.push_back(block * plane.block_stride + slot * plane.token_stride);
      }
      const size_t row = shape.planes[p].row_bytes;
      for (uint32_t head = 0; head < shape.planes[p].heads; ++head) {
        for (const int64_t offset : token_offsets) {
          std::byte* data = plane.layer_bases[layer] + offset + head * plane.head_stride;
          Piece* last = pieces->empty() ? nullptr : &pieces->back();
          if (last && last->data + last->bytes == data && last->bytes + row <= max_bytes) {
            last->bytes += row;
          } else {
            pieces->push_back({data, row});
          }
        }
      }
    }
  }
}

size_t Gather(std::span<const Piece> pieces, std::byte* into) {
  const std::byte* const begin = into;
  for (const Piece& piece : pieces) {
    std::memcpy(into, piece.data, piece.bytes);
    into += piece.bytes;
  }
  return static_cast<size_t>(into - begin);
}

size_t Scatter(const std::byte* from, std::span<const Piece> pieces) {
  const std::byte* const begin = from;
  for (const Piece& piece : pieces) {
    std::memcpy(piece.data, from, piece.bytes);
    from += piece.bytes;
  }
  return static_cast<size_t>(from - begin);
}

}  // namespace cairn::bench
