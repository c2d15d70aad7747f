// SPDX-License-Identifier: Apache-2.0
//
// One plane of one layer in paged memory, as an input says: rows, range of positions, table, which
// may lead out or name something twice, and strides of any layout.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/codec/kv_copy.h"
#include "base/core/check.h"
#include "fuzz/input.h"
#include "gpu/describe.h"

namespace cairn::fuzz {

using Bytes = std::vector<std::byte>;

class PagedPlane {
 public:
  explicit PagedPlane(Input& input) {
    plane_.name = "p";
    plane_.heads = 1 + input.Take<uint8_t>() % 3u;
    plane_.dtype = static_cast<Dtype>(input.Take<uint8_t>() % 8);
    plane_.row_bytes = (1 + input.Take<uint8_t>() % 70u) * DtypeBytes(plane_.dtype);
    DrawTable(input);
    DrawStrides(input);
  }

  // How a restore looks at it before it writes: the table is on the device.
  bool is_valid() {
    group_.table.on_device = group_.table.kind != TableKind::kNone;
    const bool accepted = Accepted(MemoryKind::kCuda);
    group_.table.on_device = false;
    return accepted && memory_bytes() <= kMemoryMax;
  }
  // The same of a table in host memory.
  bool is_valid_on_host() { return Accepted(MemoryKind::kHost); }

  const Plane& plane() const { return plane_; }
  const GroupView& group() const { return group_; }
  int64_t memory_bytes() const { return high_ - low_; }
  std::byte* BaseIn(std::byte* memory, uint32_t head) const {
    return memory - low_ + head * view_.head_stride;
  }
  uint64_t entries_end() const {
    return group_.blocks * (group_.table.kind == TableKind::kSlots ? group_.tokens_per_block : 1);
  }
  // Entries that positions of the view need.
  uint32_t first_entry() const { return static_cast<uint32_t>(EntryOf(group_.position)); }
  uint32_t end_entry() const {
    return static_cast<uint32_t>(EntryOf(group_.position + group_.count - 1) + 1);
  }
  uint64_t entry(uint64_t index) const {
    return static_cast<uint64_t>(group_.table.is_64_bit ? wide_[index] : narrow_[index]);
  }
  gpu::PagedView Described() const {
    const auto view = gpu::DescribePlane(group_, view_, plane_.dtype, group_.table.entries,
                                         group_.table.kind == TableKind::kNone ? 0 : entries_end());
    CAIRN_CHECK(view.ok());
    return *view;
  }

  // Sets the bytes of these positions to one, in `marks`, of the memory's size. False: a position
  // has no place.
  bool Mark(uint64_t begin, uint64_t end, Bytes& marks) const {
    bool all = true;
    for (uint64_t position = begin; position < end; ++position) {
      uint64_t block = 0, slot = position - group_.position;
      const uint64_t per_block = group_.tokens_per_block;
      if (group_.table.kind != TableKind::kNone) {
        const uint64_t found = entry(EntryOf(position));
        if (found >= entries_end()) {
          all = false;
          continue;
        }
        const bool blocks = group_.table.kind == TableKind::kBlocks;
        slot = blocks ? found * per_block + (position - group_.table.table_position) % per_block
                      : found;
      }
      if (per_block != 0) {
        block = slot / per_block;
        slot %= per_block;
      }
      MarkRow(static_cast<int64_t>(block) * view_.block_stride +
                  static_cast<int64_t>(slot) * view_.token_stride,
              marks);
    }
    return all;
  }
  // Rows of one head, as base/codec puts them there.
  void Scatter(std::byte* memory, uint32_t head, uint64_t begin, uint64_t end, const Bytes& rows,
               uint64_t row_count, uint64_t first_row) const {
    Plane plane = plane_;
    plane.heads = 1;
    std::byte* const base = BaseIn(memory, head);
    PlaneView view = view_;
    view.layer_bases = {&base, 1};
    ScatterSlice(plane, view, 0, PositionMap(group_, begin, end - begin), rows.data(), row_count,
                 first_row);
  }

 private:
  static constexpr int64_t kMemoryMax = 1 << 18;  // So that many are tried.

  uint64_t EntryOf(uint64_t position) const {
    const uint64_t index = position - group_.table.table_position;
    return group_.table.kind == TableKind::kBlocks ? index / group_.tokens_per_block : index;
  }

  void DrawTable(Input& input) {
    group_.position = input.Take<uint8_t>();
    group_.count = 1 + input.Take<uint8_t>() % 40u;
    const uint8_t kind = input.Take<uint8_t>();
    BlockTable& table = group_.table;
    table.kind = static_cast<TableKind>(kind % 3);
    table.is_64_bit = kind % 2 == 1;
    table.table_position = group_.position - std::min<uint64_t>(group_.position, kind / 8);
    group_.tokens_per_block = input.Take<uint8_t>() % 9u;
    if (table.kind == TableKind::kNone) {
      const uint64_t per_block = group_.tokens_per_block;
      group_.blocks = per_block == 0 ? 1 : (group_.count - 1) / per_block + 1;
      return;
    }
    group_.tokens_per_block = std::max(1u, group_.tokens_per_block);
    table.count = EntryOf(group_.position + group_.count - 1) + 1;
    const bool slots = table.kind == TableKind::kSlots;
    group_.blocks = input.Take<uint8_t>() % 4u +
                    (slots ? (table.count - 1) / group_.tokens_per_block + 1 : table.count);
    wide_.resize(table.count);
    std::iota(wide_.begin(), wide_.end(), int64_t{0});
    const uint8_t turn = input.Take<uint8_t>();
    std::rotate(wide_.begin(), wide_.begin() + turn % table.count, wide_.end());
    if (turn >= 128) std::reverse(wide_.begin(), wide_.end());
    for (uint8_t changes = input.Take<uint8_t>() % 4u; changes > 0; --changes) {
      const uint64_t at = input.Take<uint8_t>() % table.count;
      wide_[at] = input.Take<int8_t>();
      if (wide_[at] == INT8_MAX) wide_[at] = table.is_64_bit ? int64_t{1} << 32 : INT32_MAX;
    }
    narrow_.assign(wide_.begin(), wide_.end());
    table.entries = table.is_64_bit ? static_cast<const void*>(wide_.data()) : narrow_.data();
  }

  // From the innermost dimension to the outermost, each over what lies within; or just anything.
  void DrawStrides(Input& input) {
    const auto element = static_cast<int64_t>(DtypeBytes(plane_.dtype));
    const uint64_t per_block = group_.tokens_per_block;
    std::array<int64_t*, 4> strides = {&view_.element_stride, &view_.head_stride,
                                       &view_.token_stride, &view_.block_stride};
    counts_ = {plane_.row_bytes / element, plane_.heads,
               static_cast<int64_t>(per_block == 0 ? group_.count : per_block),
               static_cast<int64_t>(group_.blocks)};
    const uint8_t order = input.Take<uint8_t>();
    if (order >= 240) {
      for (int64_t* const stride : strides) *stride = input.Take<int16_t>();
    } else {
      std::array<size_t, 4> dimensions = {0, 1, 2, 3};
      for (uint8_t i = 0; i < order % 24; ++i) {
        std::next_permutation(dimensions.begin(), dimensions.end());
      }
      uint8_t pads = input.Take<uint8_t>();
      int64_t span = element;
      for (const size_t dimension : dimensions) {
        const int64_t wider[] = {0, 0, 16, 1};
        const int64_t stride = span + wider[pads % 4];
        *strides[dimension] = pads % 4 == 1 ? -stride : stride;
        span += stride * (counts_[dimension] - 1);
        pads /= 4;
      }
    }
    if (view_.element_stride == element && order % 2 == 0) view_.element_stride = 0;
    high_ = element;
    for (size_t i = 0; i < strides.size(); ++i) {
      const int64_t stride = i == 0 && *strides[i] == 0 ? element : *strides[i];
      (stride < 0 ? low_ : high_) += stride * (counts_[i] - 1);
    }
  }

  void MarkRow(int64_t place, Bytes& marks) const {
    const auto element = static_cast<int64_t>(DtypeBytes(plane_.dtype));
    const int64_t stride = view_.element_stride == 0 ? element : view_.element_stride;
    for (int64_t head = 0; head < counts_[1]; ++head) {
      for (int64_t i = 0; i < counts_[0]; ++i) {
        const int64_t at = place - low_ + head * view_.head_stride + i * stride;
        std::fill_n(marks.begin() + at, element, std::byte{1});
      }
    }
  }

  bool Accepted(MemoryKind memory) {
    ModelSpec model;
    model.groups.push_back({.name = "g", .layers = 1, .planes = {plane_}});
    std::byte* const base = &layer_;  // Nobody follows it.
    PlaneView view = view_;
    view.layer_bases = {&base, 1};
    group_.planes = {&view, 1};
    const KvView all{.groups = {&group_, 1}, .memory = memory};
    const bool accepted = ValidateKvView(model, all, KvUse::kRestore).ok();
    group_.planes = {};
    return accepted;
  }

  Plane plane_;
  GroupView group_{};
  PlaneView view_{};
  std::vector<int64_t> wide_;
  std::vector<int32_t> narrow_;
  std::array<int64_t, 4> counts_{};  // Elements, heads, slots of a block, blocks.
  int64_t low_ = 0, high_ = 0;       // How far the plane reaches from its base.
  std::byte layer_{};
};

}  // namespace cairn::fuzz
