// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kv_pool.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace cairn::testing {

namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr std::byte kUntouched{0xEE};

uint64_t Mix(uint64_t value) {  // The finalizer of SplitMix64.
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

void FillRow(uint64_t seed, uint32_t group, uint32_t layer, uint32_t plane, uint32_t head,
             uint64_t position, std::vector<std::byte>* row) {
  const uint64_t key =
      Mix(Mix(Mix(seed) + position) +
          (uint64_t{group} << 48 | uint64_t{layer} << 32 | uint64_t{plane} << 16 | head));
  for (size_t i = 0; i < row->size(); i += sizeof(uint64_t)) {
    uint64_t word = Mix(key + i);
    // As 16-bit floats: signs and mantissas as drawn, exponents close to each other.
    if ((seed & kPackable) != 0) word = (word & 0x83FF83FF83FF83FF) | 0x3C003C003C003C00;
    std::memcpy(row->data() + i, &word, std::min(sizeof word, row->size() - i));
  }
}

}  // namespace

const std::vector<Layout>& AllLayouts() {
  static const std::vector<Layout> all = {
      Layout::kContiguous,     Layout::kTokenMajor,    Layout::kNhd,          Layout::kHnd,
      Layout::kFused,          Layout::kBlocksNoTable, Layout::kSlots32,      Layout::kSlots64,
      Layout::kReversedTokens, Layout::kReversedHeads, Layout::kElementStride};
  return all;
}

std::string LayoutName(Layout layout) {
  static const char* const names[] = {"Contiguous",     "TokenMajor",    "Nhd",          "Hnd",
                                      "Fused",          "BlocksNoTable", "Slots32",      "Slots64",
                                      "ReversedTokens", "ReversedHeads", "ElementStride"};
  return names[static_cast<size_t>(layout)];
}

KvPool::KvPool(const LayerGroup& group, uint32_t group_index, Layout layout, uint64_t first,
               uint64_t count)
    : group_(group), index_(group_index), first_(first), count_(count) {
  const bool blocks = layout == Layout::kNhd || layout == Layout::kHnd ||
                      layout == Layout::kFused || layout == Layout::kBlocksNoTable ||
                      layout == Layout::kSlots64;
  tokens_per_block_ = blocks ? kBlockTokens : 0;
  // Room for whole blocks, and some that are not used.
  const auto tokens =
      static_cast<int64_t>((count + kBlockTokens) / kBlockTokens * kBlockTokens + 2 * kBlockTokens);
  const int64_t block_count = tokens / kBlockTokens;
  const int64_t spread = layout == Layout::kElementStride ? 2 : 1;
  int64_t token_bytes = 0;  // One layer, all planes.
  for (const Plane& plane : group.planes) token_bytes += int64_t{plane.heads} * plane.row_bytes;
  int64_t at = 0;
  int64_t plane_at = 0;  // Where a plane begins in a token (kTokenMajor) or block (kFused).
  for (const Plane& plane : group.planes) {
    const int64_t row = plane.row_bytes;
    const int64_t heads = plane.heads;
    PlaneShape shape{};
    shape.token_stride = heads * row * spread;
    shape.head_stride = row * spread;
    shape.block_stride = kBlockTokens * heads * row;
    int64_t layer_bytes = tokens * heads * row * spread;
    int64_t start = 0;
    switch (layout) {
      case Layout::kContiguous:
        shape.token_stride = row;
        shape.head_stride = tokens * row;
        break;
      case Layout::kHnd:
        shape.token_stride = row;
        shape.head_stride = kBlockTokens * row;
        break;
      case Layout::kReversedTokens:
        shape.token_stride = -heads * row;
        start = (tokens - 1) * heads * row;
        break;
      case Layout::kReversedHeads:
        shape.head_stride = -row;
        start = (heads - 1) * row;
        break;
      case Layout::kElementStride:
        shape.element_stride = 2 * int64_t{DtypeBytes(plane.dtype)};
        break;
      case Layout::kTokenMajor:
        shape.token_stride = token_bytes * group.layers;
        layer_bytes = 0;
        break;
      case Layout::kFused:
        shape.block_stride = token_bytes * kBlockTokens;
        layer_bytes = 0;
        break;
      default: break;
    }
    for (uint32_t layer = 0; layer < group.layers; ++layer) {
      if (layout == Layout::kTokenMajor) {
        shape.base.push_back(plane_at + int64_t{layer} * token_bytes);
      } else if (layout == Layout::kFused) {
        shape.base.push_back(plane_at + int64_t{layer} * token_bytes * tokens);
      } else {
        shape.base.push_back(at + start);
        at += layer_bytes;
      }
    }
    plane_at += layout == Layout::kFused ? shape.token_stride * kBlockTokens : heads * row;
    planes_.push_back(std::move(shape));
  }
  if (layout == Layout::kTokenMajor || layout == Layout::kFused) {
    at = token_bytes * group.layers * tokens;
  }
  memory_.assign(static_cast<size_t>(at), kUntouched);

  std::mt19937_64 random(index_ + count);
  const auto shuffled = [&](int64_t size) {
    std::vector<int64_t> order(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };
  // A table may begin before the view: here up to three positions before the pool.
  const uint64_t lead = std::min<uint64_t>(first, 3);
  table_.table_position = first - lead;
  if (layout == Layout::kNhd || layout == Layout::kFused || layout == Layout::kHnd) {
    table_.kind = TableKind::kBlocks;
    table64_ = shuffled(block_count);
  } else if (layout == Layout::kSlots32 || layout == Layout::kSlots64) {
    table_.kind = TableKind::kSlots;
    table64_ = shuffled(tokens);
  } else {
    table_ = {};
  }
  table_.count = table64_.size();
  table_.is_64_bit = layout == Layout::kHnd || layout == Layout::kSlots64;
  table32_.assign(table64_.begin(), table64_.end());
  if (table_.kind != TableKind::kNone) {
    table_.entries = table_.is_64_bit ? static_cast<const void*>(table64_.data())
                                      : static_cast<const void*>(table32_.data());
  }
}

std::byte* KvPool::Address(uint32_t plane, uint32_t layer, uint64_t position, uint32_t head,
                           uint64_t element) {
  const PlaneShape& shape = planes_[plane];
  uint64_t block = 0;
  uint64_t slot = position - first_;
  if (table_.kind == TableKind::kBlocks) {
    const uint64_t index = position - table_.table_position;
    block = static_cast<uint64_t>(table64_[index / kBlockTokens]);
    slot = index % kBlockTokens;
  } else if (table_.kind == TableKind::kSlots) {
    slot = static_cast<uint64_t>(table64_[position - table_.table_position]);
  }
  if (table_.kind != TableKind::kBlocks && tokens_per_block_ != 0) {
    block = slot / kBlockTokens;
    slot %= kBlockTokens;
  }
  const int64_t element_stride = shape.element_stride == 0
                                     ? int64_t{DtypeBytes(group_.planes[plane].dtype)}
                                     : shape.element_stride;
  return memory_.data() + shape.base[layer] + static_cast<int64_t>(block) * shape.block_stride +
         static_cast<int64_t>(slot) * shape.token_stride + int64_t{head} * shape.head_stride +
         static_cast<int64_t>(element) * element_stride;
}

GroupView KvPool::View(uint64_t position, uint64_t count, uint32_t layer_begin, uint32_t layers) {
  if (layers == 0) layers = group_.layers - layer_begin;
  GroupView view;
  view.group = index_;
  view.layer_begin = layer_begin;
  view.position = position;
  view.count = count;
  view.tokens_per_block = tokens_per_block_;
  view.table = table_;
  std::vector<PlaneView>& planes = views_.emplace_back();
  for (const PlaneShape& shape : planes_) {
    std::vector<std::byte*>& bases = bases_.emplace_back();
    for (uint32_t layer = layer_begin; layer < layer_begin + layers; ++layer) {
      // Without a table a view's slots count from its own first position.
      int64_t base = shape.base[layer];
      if (table_.kind == TableKind::kNone && tokens_per_block_ == 0) {
        base += static_cast<int64_t>(position - first_) * shape.token_stride;
      } else if (table_.kind == TableKind::kNone) {
        base += static_cast<int64_t>((position - first_) / kBlockTokens) * shape.block_stride;
      }
      bases.push_back(memory_.data() + base);
    }
    planes.push_back({.layer_bases = bases,
                      .block_stride = shape.block_stride,
                      .token_stride = shape.token_stride,
                      .head_stride = shape.head_stride,
                      .element_stride = shape.element_stride});
  }
  view.planes = planes;
  return view;
}

void KvPool::Write(const SeedOf& seed_of, uint64_t begin, uint64_t end, uint32_t layer_begin,
                   uint32_t layers) {
  if (layers == 0) layers = group_.layers - layer_begin;
  std::vector<std::byte> row;
  for (uint32_t plane = 0; plane < planes_.size(); ++plane) {
    const Plane& shape = group_.planes[plane];
    const size_t element_bytes = DtypeBytes(shape.dtype);
    row.resize(shape.row_bytes);
    for (uint32_t layer = layer_begin; layer < layer_begin + layers; ++layer) {
      for (uint64_t position = begin; position < end; ++position) {
        for (uint32_t head = 0; head < shape.heads; ++head) {
          FillRow(seed_of(position), index_, layer, plane, head, position, &row);
          if (planes_[plane].element_stride == 0) {
            std::memcpy(Address(plane, layer, position, head, 0), row.data(), row.size());
            continue;
          }
          for (size_t element = 0; element < row.size() / element_bytes; ++element) {
            std::memcpy(Address(plane, layer, position, head, element),
                        row.data() + element * element_bytes, element_bytes);
          }
        }
      }
    }
  }
}

KvSet::KvSet(const ModelSpec& model, Layout layout, uint64_t first, uint64_t count) {
  for (uint32_t group = 0; group < model.groups.size(); ++group) {
    pools_.push_back(std::make_unique<KvPool>(model.groups[group], group, layout, first, count));
  }
}

void KvSet::Write(const SeedOf& seed_of, uint64_t begin, uint64_t end) {
  for (const auto& pool : pools_) pool->Write(seed_of, begin, end);
}

const KvView* KvSet::View(uint64_t position, uint64_t count) {
  return View(std::vector<std::pair<uint64_t, uint64_t>>(pools_.size(), {position, count}));
}

const KvView* KvSet::View(const std::vector<std::pair<uint64_t, uint64_t>>& position_and_count) {
  std::vector<GroupView>& groups = groups_.emplace_back();
  for (size_t group = 0; group < pools_.size(); ++group) {
    const auto [position, count] = position_and_count[group];
    groups.push_back(pools_[group]->View(position, count));
  }
  views_.push_back({.groups = groups});
  return &views_.back();
}

bool KvSet::operator==(const KvSet& other) const {
  for (size_t group = 0; group < pools_.size(); ++group) {
    if (pools_[group]->memory() != other.pools_[group]->memory()) return false;
  }
  return true;
}

}  // namespace cairn::testing
