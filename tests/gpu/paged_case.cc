// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/paged_case.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/core/check.h"

namespace cairn::testing {
namespace {

template <typename T, size_t kCount>
T OneOf(SeededRandom& random, const T (&of)[kCount]) {
  return of[random.Below(kCount)];
}

}  // namespace

PagedCase::PagedCase(SeededRandom& random) {
  DrawPlane(random);
  DrawTable(random);
  DrawStrides(random);
  for (std::byte& byte : memory_) byte = static_cast<std::byte>(random.Next());
}

void PagedCase::DrawPlane(SeededRandom& random) {
  const Dtype others[] = {Dtype::kF32, Dtype::kF8E4M3, Dtype::kU8, Dtype::kOpaque};
  const uint32_t widths[] = {1,  2,  3,  7,  8,  16, 24,  32,  63,  64,
                             64, 64, 64, 65, 80, 96, 128, 128, 192, 256};
  const uint64_t kind = random.Below(8);
  plane_.name = "k";
  plane_.dtype = kind < 4 ? Dtype::kBf16 : kind < 7 ? Dtype::kF16 : OneOf(random, others);
  plane_.heads = static_cast<uint32_t>(1 + random.Below(3));
  plane_.row_bytes = OneOf(random, widths) * DtypeBytes(plane_.dtype);
}

void PagedCase::DrawTable(SeededRandom& random) {
  const uint32_t block_tokens[] = {1, 16, 16, 64, 5};
  const uint64_t kind = random.Below(8);
  group_.position = random.Below(300);
  group_.count = 1 + random.Below(random.Below(4) == 0 ? 300 : 60);
  group_.tokens_per_block = OneOf(random, block_tokens);
  group_.table.table_position = group_.position - random.Below(group_.position + 1);
  group_.table.is_64_bit = random.Below(2) == 0;
  const uint64_t behind = group_.position + group_.count - group_.table.table_position;
  uint64_t entries = 0;
  if (kind == 0) {
    group_.table.kind = TableKind::kNone;
    if (random.Below(2) == 0) group_.tokens_per_block = 0;
  } else if (kind < 5) {
    group_.table.kind = TableKind::kBlocks;
    entries = (behind - 1) / group_.tokens_per_block + 1;
  } else {
    group_.table.kind = TableKind::kSlots;
    if (random.Below(2) == 0) group_.tokens_per_block = 0;
    entries = behind;
  }
  const uint64_t per_block = group_.tokens_per_block;
  if (group_.table.kind == TableKind::kNone) {
    slots_in_block_ = per_block == 0 ? group_.count : per_block;
    blocks_ = per_block == 0 ? 1 : (group_.count - 1) / per_block + 1;
    return;
  }
  entries_end_ = entries + random.Below(5);
  if (group_.table.kind == TableKind::kBlocks) {
    slots_in_block_ = per_block;
    blocks_ = entries_end_;
  } else {
    slots_in_block_ = per_block == 0 ? entries_end_ : per_block;
    blocks_ = per_block == 0 ? 1 : (entries_end_ - 1) / per_block + 1;
  }
  std::vector<int64_t> all(entries_end_);
  std::iota(all.begin(), all.end(), int64_t{0});
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.Below(i)]);
  all.resize(entries);
  // Entries before the view are nobody's business: not even numbers of blocks.
  const uint64_t before = (group_.position - group_.table.table_position) /
                          (group_.table.kind == TableKind::kBlocks ? per_block : 1);
  for (uint64_t i = 0; i < before; ++i) all[i] = -1;
  if (group_.table.is_64_bit) {
    entries64_ = all;
    group_.table.entries = entries64_.data();
  } else {
    entries32_.assign(all.begin(), all.end());
    group_.table.entries = entries32_.data();
  }
  group_.table.count = entries;
}

// From the innermost dimension to the outermost, each steps over what lies within.
void PagedCase::DrawStrides(SeededRandom& random) {
  enum { kElement, kHead, kSlot, kBlock };
  std::array<int, 4> order = {kElement, kHead, kSlot, kBlock};  // NHD, pools, plain tensors.
  const uint64_t layout = random.Below(5);
  const char* const names[] = {"NHD", "HND", "fused", "MLA", "any"};
  layout_ = names[layout];
  if (layout == 1) order = {kElement, kSlot, kHead, kBlock};
  if (layout == 3) plane_.heads = 1;
  if (layout == 4) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  }
  const uint32_t element_bytes = DtypeBytes(plane_.dtype);
  const std::array<uint64_t, 4> counts = {plane_.row_bytes / element_bytes, plane_.heads,
                                          slots_in_block_, blocks_};
  std::array<int64_t, 4> strides{};
  uint64_t span = element_bytes, below = 0;
  for (const int dimension : order) {
    uint64_t stride = span;
    if (layout == 2 && dimension == kSlot) stride *= 2;                   // K beside V.
    if (layout == 3 && dimension == kSlot) stride += 64 * element_bytes;  // The rotary part.
    if (layout == 4 && random.Below(3) == 0) stride += random.Below(20);
    const bool negative = layout == 4 && random.Below(4) == 0;
    strides[static_cast<size_t>(dimension)] =
        negative ? -static_cast<int64_t>(stride) : static_cast<int64_t>(stride);
    const uint64_t reach = stride * (counts[static_cast<size_t>(dimension)] - 1);
    if (negative) below += reach;
    span += reach;
    if (layout == 2 && dimension == kSlot) span = stride * counts[kSlot];
  }
  view_.element_stride = strides[kElement];
  view_.head_stride = strides[kHead];
  view_.token_stride = strides[kSlot];
  view_.block_stride = strides[kBlock];
  if (view_.element_stride == element_bytes && random.Below(2) == 0) view_.element_stride = 0;
  // Where others have theirs, before and behind.
  base_ = below + (random.Below(3) == 0 ? random.Below(48) : 0);
  memory_.resize(base_ - below + span + random.Below(3) * 16);
  skew_ = random.Below(4) == 0 ? random.Below(64) : 0;
}

PlaneView PagedCase::PlaneIn(std::byte* memory) {
  layer_ = memory + base_;
  view_.layer_bases = {&layer_, 1};
  return view_;
}

std::byte* PagedCase::BaseIn(std::byte* memory, uint32_t head) const {
  return memory + base_ + static_cast<int64_t>(head) * view_.head_stride;
}

gpu::PagedView PagedCase::OnMachine(KernelMachine& machine) {
  const void* table = nullptr;
  if (!entries32_.empty()) table = machine.PutAll(lost32_.empty() ? entries32_ : lost32_);
  if (!entries64_.empty()) table = machine.PutAll(lost64_.empty() ? entries64_ : lost64_);
  const Result<gpu::PagedView> view =
      gpu::DescribePlane(group_, view_, plane_.dtype, table, entries_end_);
  CAIRN_CHECK(view.ok());
  return *view;
}

PagedCase::Positions PagedCase::LoseEntry(SeededRandom& random) {
  if (group_.table.kind == TableKind::kNone) return {};
  const uint64_t per_entry = group_.table.kind == TableKind::kBlocks ? group_.tokens_per_block : 1;
  const uint64_t position = group_.position + random.Below(group_.count);
  const uint64_t index = (position - group_.table.table_position) / per_entry;
  lost32_ = entries32_;
  lost64_ = entries64_;
  if (group_.table.is_64_bit) {
    const int64_t outside[] = {static_cast<int64_t>(entries_end_), -1, int64_t{1} << 32, INT64_MIN};
    lost64_[index] = OneOf(random, outside);
  } else {
    const int32_t outside[] = {static_cast<int32_t>(entries_end_), -1, INT32_MAX};
    lost32_[index] = OneOf(random, outside);
  }
  const uint64_t begin = group_.table.table_position + index * per_entry;
  return {begin, begin + per_entry};
}

std::string PagedCase::Describe() const {
  const char* const kinds[] = {"no table", "blocks", "slots"};
  return layout_ + " " + DtypeName(plane_.dtype) + " " + std::to_string(plane_.heads) +
         " heads of " + std::to_string(plane_.row_bytes) + " bytes, positions " +
         std::to_string(group_.position) + " + " + std::to_string(group_.count) + ", " +
         kinds[static_cast<int>(group_.table.kind)] + (group_.table.is_64_bit ? " i64" : " i32") +
         " of " + std::to_string(group_.tokens_per_block) + ", strides " +
         std::to_string(view_.block_stride) + " " + std::to_string(view_.token_stride) + " " +
         std::to_string(view_.head_stride) + " " + std::to_string(view_.element_stride) +
         ", skew " + std::to_string(skew_);
}

}  // namespace cairn::testing
