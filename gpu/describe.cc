// SPDX-License-Identifier: Apache-2.0
#include "gpu/describe.h"

#include <algorithm>
#include <string>

#include "base/core/check.h"

namespace cairn::gpu {
namespace {

// The largest power of two, at most kLargestUnit, that divides the places of all the view's
// elements: elements do not cross its multiples where they are not adjacent.
uint8_t UnitOf(const PagedView& view, const std::byte* base) {
  uint64_t bits = kLargestUnit | reinterpret_cast<uintptr_t>(base) |
                  static_cast<uint64_t>(view.block_stride) |
                  static_cast<uint64_t>(view.token_stride);
  if (view.element_stride != 0) {
    bits |= static_cast<uint64_t>(view.element_stride) | view.element_bytes;
  }
  return static_cast<uint8_t>(bits & (0 - bits));
}

uint64_t OriginOf(const GroupView& group) {
  return group.table.kind == TableKind::kNone ? group.position : group.table.table_position;
}

}  // namespace

Result<PagedView> DescribePlane(const GroupView& group, const PlaneView& plane, Dtype dtype,
                                const void* table, uint64_t entries_end) {
  const bool has_table = group.table.kind != TableKind::kNone;
  const uint64_t positions = group.position + group.count - OriginOf(group);
  if (positions > UINT32_MAX || (has_table && entries_end > UINT32_MAX)) {
    return Status(StatusCode::kInvalidArgument,
                  "kv view: group " + std::to_string(group.group) + " has " +
                      (positions > UINT32_MAX ? std::to_string(positions) + " positions"
                                              : std::to_string(entries_end) + " blocks") +
                      "; a device counts to " + std::to_string(UINT32_MAX));
  }
  PagedView view;
  view.element_bytes = DtypeBytes(dtype);
  view.tokens_per_block = group.tokens_per_block;
  view.block_stride = plane.block_stride;
  view.token_stride = plane.token_stride;
  view.element_stride = plane.element_stride == view.element_bytes ? 0 : plane.element_stride;
  if (has_table) {
    view.table = table;
    view.is_64_bit = group.table.is_64_bit;
    view.of_slots = group.table.kind == TableKind::kSlots;
    view.entries_end = static_cast<uint32_t>(entries_end);
  }
  return view;
}

WantedRows DescribeRows(const GroupView& group, uint64_t position, uint64_t begin, uint64_t end) {
  CAIRN_CHECK(begin <= end && begin >= position && end - position <= UINT32_MAX);
  CAIRN_CHECK(begin == end || (begin >= group.position && end <= group.position + group.count));
  return {.index = static_cast<int64_t>(position - OriginOf(group)),
          .first = static_cast<uint32_t>(begin - position),
          .end = static_cast<uint32_t>(end - position)};
}

Result<FrameToScatter> DescribeFrame(const FrameShape& shape, std::span<const std::byte> stored,
                                     const std::byte* on_device, std::byte* base,
                                     const PagedView& view, uint32_t view_index,
                                     const WantedRows& wanted) {
  CAIRN_CHECK(wanted.end <= shape.rows && view.element_bytes == DtypeBytes(shape.dtype));
  CAIRN_ASSIGN_OR_RETURN(const FrameHeader header, ReadFrameHeaderOf(shape, stored));
  FrameToScatter frame;
  frame.payload = reinterpret_cast<const uint8_t*>(on_device) + kFrameHeaderBytes;
  frame.base = reinterpret_cast<uint8_t*>(base);
  frame.wanted = wanted;
  frame.payload_bytes = header.payload_bytes;
  frame.rows = shape.rows;
  frame.channels = shape.channels;
  frame.view = view_index;
  frame.codec = header.codec;
  frame.flags = header.flags;
  frame.fp16 = shape.dtype == Dtype::kF16;
  frame.unit = UnitOf(view, base);
  return frame;
}

FrameToScatter DescribeRaw(uint32_t rows, uint32_t channels, const std::byte* on_device,
                           std::byte* base, const PagedView& view, uint32_t view_index,
                           const WantedRows& wanted) {
  CAIRN_CHECK(wanted.end <= rows);
  FrameToScatter frame;
  frame.payload = reinterpret_cast<const uint8_t*>(on_device);
  frame.base = reinterpret_cast<uint8_t*>(base);
  frame.wanted = wanted;
  frame.payload_bytes = rows * channels * view.element_bytes;
  frame.rows = rows;
  frame.channels = channels;
  frame.view = view_index;
  frame.codec = FrameCodec::kRaw;
  frame.unit = UnitOf(view, base);
  return frame;
}

StripToGather DescribeStrip(const Plane& plane, const std::byte* base, std::byte* into,
                            const PagedView& view, uint32_t view_index, const WantedRows& wanted) {
  StripToGather strip;
  strip.base = reinterpret_cast<const uint8_t*>(base);
  strip.into = reinterpret_cast<uint8_t*>(into);
  strip.wanted = wanted;
  strip.row_bytes = plane.row_bytes;
  strip.view = view_index;
  strip.unit = UnitOf(view, base);
  return strip;
}

}  // namespace cairn::gpu
