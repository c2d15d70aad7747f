// SPDX-License-Identifier: Apache-2.0
#include "base/codec/kv_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/codec/stream_copy.h"
#include "base/core/check.h"

namespace cairn {

namespace {

int64_t TableEntry(const BlockTable& table, uint64_t index) {
  CAIRN_CHECK(index < table.count);
  if (table.is_64_bit) return static_cast<const int64_t*>(table.entries)[index];
  return static_cast<const int32_t*>(table.entries)[index];
}

template <bool kGather>
void CopyBytes(std::byte* view, std::byte* canonical, size_t bytes) {
  if constexpr (kGather) {
    std::memcpy(canonical, view, bytes);
  } else {
    std::memcpy(view, canonical, bytes);
  }
}

// Copies `rows` rows, each side with a stride of its own. kGather: view to canonical.
template <bool kGather>
void CopyRows(const Plane& plane, int64_t element_stride, std::byte* view, int64_t view_stride,
              std::byte* canonical, uint64_t canonical_stride, uint64_t rows) {
  const size_t row_bytes = plane.row_bytes;
  const size_t element_bytes = DtypeBytes(plane.dtype);
  if (element_stride != 0 && element_stride != static_cast<int64_t>(element_bytes)) {
    for (uint64_t row = 0; row < rows; ++row) {
      std::byte* at = view + static_cast<int64_t>(row) * view_stride;
      std::byte* to = canonical + row * canonical_stride;
      for (size_t done = 0; done < row_bytes; done += element_bytes) {
        CopyBytes<kGather>(at, to + done, element_bytes);
        at += element_stride;
      }
    }
    return;
  }
  if (view_stride == static_cast<int64_t>(row_bytes) && canonical_stride == row_bytes) {
    CopyBytes<kGather>(view, canonical, rows * row_bytes);
    return;
  }
  for (uint64_t row = 0; row < rows; ++row) {
    CopyBytes<kGather>(view, canonical, row_bytes);
    canonical += canonical_stride;
    view += view_stride;
  }
}

// How many positions follow each other in a block.
uint64_t RunLength(std::span<const PositionMap::Entry> entries, uint64_t first) {
  uint64_t length = 1;
  while (first + length < entries.size() && entries[first + length].block == entries[first].block &&
         entries[first + length].slot == entries[first].slot + static_cast<int64_t>(length)) {
    ++length;
  }
  return length;
}

template <bool kGather>
void CopyCanonical(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                   const PositionMap& map, std::byte* canonical, uint64_t canonical_count,
                   uint64_t canonical_first) {
  std::byte* base = view.layer_bases[layer_index];
  const std::span<const PositionMap::Entry> entries = map.entries();
  const size_t row_bytes = plane.row_bytes;
  if (canonical_count == 1) {  // A token: the heads are adjacent in canonical order.
    std::byte* at =
        base + entries[0].block * view.block_stride + entries[0].slot * view.token_stride;
    CopyRows<kGather>(plane, view.element_stride, at, view.head_stride, canonical, row_bytes,
                      plane.heads);
    return;
  }
  // The view is walked in the order of its memory: it is cold and large, while the slice fits the
  // cache. Walking it across its order costs a sixth (256-byte rows, blocks of 16 tokens).
  const bool heads_inside = std::abs(view.head_stride) < std::abs(view.token_stride);
  const uint64_t head_bytes = canonical_count * row_bytes;
  for (uint64_t first = 0; first < entries.size();) {
    const uint64_t run = RunLength(entries, first);
    std::byte* at =
        base + entries[first].block * view.block_stride + entries[first].slot * view.token_stride;
    std::byte* to = canonical + (canonical_first + first) * row_bytes;
    if (heads_inside) {
      for (uint64_t i = 0; i < run; ++i) {
        CopyRows<kGather>(plane, view.element_stride,
                          at + static_cast<int64_t>(i) * view.token_stride, view.head_stride,
                          to + i * row_bytes, head_bytes, plane.heads);
      }
    } else {
      for (uint32_t head = 0; head < plane.heads; ++head) {
        CopyRows<kGather>(plane, view.element_stride, at + head * view.head_stride,
                          view.token_stride, to + head * head_bytes, row_bytes, run);
      }
    }
    first += run;
  }
}

template <bool kGather>
void CopyHead(const Plane& plane, const PlaneView& view, uint32_t layer_index, uint32_t head,
              std::span<const PositionMap::Entry> entries, std::byte* rows) {
  std::byte* const base = view.layer_bases[layer_index] + head * view.head_stride;
  for (uint64_t first = 0; first < entries.size();) {
    const uint64_t run = RunLength(entries, first);
    CopyRows<kGather>(
        plane, view.element_stride,
        base + entries[first].block * view.block_stride + entries[first].slot * view.token_stride,
        view.token_stride, rows + first * plane.row_bytes, plane.row_bytes, run);
    first += run;
  }
}

// One side of a copy from view to view: the place of the first row, and the strides.
struct RowsAt {
  std::byte* base = nullptr;
  int64_t token_stride = 0, head_stride = 0, element_stride = 0;  // 0: elements are adjacent.
};

RowsAt RowsOf(const Plane& plane, const PlaneView& view, uint32_t layer_index,
              const PositionMap::Entry& first) {
  const bool adjacent = view.element_stride == static_cast<int64_t>(DtypeBytes(plane.dtype));
  return {view.layer_bases[layer_index] + first.block * view.block_stride +
              first.slot * view.token_stride,
          view.token_stride, view.head_stride, adjacent ? 0 : view.element_stride};
}

void CopyElements(const Plane& plane, const RowsAt& from, const RowsAt& into, uint64_t count) {
  const auto element_bytes = static_cast<int64_t>(DtypeBytes(plane.dtype));
  const int64_t from_step = from.element_stride == 0 ? element_bytes : from.element_stride;
  const int64_t into_step = into.element_stride == 0 ? element_bytes : into.element_stride;
  const int64_t elements = plane.row_bytes / element_bytes;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    for (int64_t head = 0; head < static_cast<int64_t>(plane.heads); ++head) {
      const std::byte* source = from.base + i * from.token_stride + head * from.head_stride;
      std::byte* target = into.base + i * into.token_stride + head * into.head_stride;
      for (int64_t element = 0; element < elements; ++element) {
        std::memcpy(target, source, static_cast<size_t>(element_bytes));
        source += from_step;
        target += into_step;
      }
    }
  }
}

// Rows of whole elements, in pieces that are as long as both sides allow. The inner of the two
// dimensions is the one in which the target's rows are closer together, since a line of memory that
// is written in two goes costs more than one that is read so; but lines that are written past the
// caches are whole, and then reading in order is worth more.
template <bool kStream>
void CopyRun(const Plane& plane, const RowsAt& from, const RowsAt& into, uint64_t count) {
  struct Dimension {
    int64_t from, into;
    uint64_t count;
  };
  Dimension inner{from.head_stride, into.head_stride, plane.heads};
  Dimension outer{from.token_stride, into.token_stride, count};
  const bool swaps = kStream ? std::abs(outer.from) < std::abs(inner.from)
                             : std::abs(outer.into) < std::abs(inner.into);
  if (inner.count == 1 || (outer.count != 1 && swaps)) std::swap(inner, outer);
  uint64_t bytes = plane.row_bytes;
  for (int level = 0; level < 2; ++level) {
    const auto step = static_cast<int64_t>(bytes);
    if (inner.count != 1 && (inner.from != step || inner.into != step)) break;
    bytes *= inner.count;
    inner = std::exchange(outer, {0, 0, 1});
  }
  for (uint64_t i = 0; i < outer.count; ++i) {
    const std::byte* source = from.base + static_cast<int64_t>(i) * outer.from;
    std::byte* target = into.base + static_cast<int64_t>(i) * outer.into;
    for (uint64_t j = 0; j < inner.count; ++j) {
      if constexpr (kStream) {
        StreamCopy(target, source, bytes);
      } else {
        std::memcpy(target, source, bytes);
      }
      source += inner.from;
      target += inner.into;
    }
  }
}

}  // namespace

void GatherHead(const Plane& plane, const PlaneView& view, uint32_t layer_index, uint32_t head,
                std::span<const PositionMap::Entry> entries, std::byte* rows) {
  CopyHead<true>(plane, view, layer_index, head, entries, rows);
}

void ScatterHead(const Plane& plane, const PlaneView& view, uint32_t layer_index, uint32_t head,
                 std::span<const PositionMap::Entry> entries, const std::byte* rows) {
  // CopyHead<false> only reads what `rows` points to.
  CopyHead<false>(plane, view, layer_index, head, entries, const_cast<std::byte*>(rows));
}

std::vector<PairedRun> PairRuns(const PositionMap& from, const PositionMap& into) {
  CAIRN_CHECK(from.count() == into.count());
  std::vector<PairedRun> runs;
  for (uint64_t first = 0; first < from.count();) {
    const uint64_t run =
        std::min(RunLength(from.entries(), first), RunLength(into.entries(), first));
    runs.push_back({from.entries()[first], into.entries()[first], run});
    first += run;
  }
  return runs;
}

void CopySlice(const Plane& plane, const PlaneView& from, const PlaneView& into,
               uint32_t layer_index, std::span<const PairedRun> runs, bool stream) {
  for (const PairedRun& run : runs) {
    const RowsAt source = RowsOf(plane, from, layer_index, run.from);
    const RowsAt target = RowsOf(plane, into, layer_index, run.into);
    if (source.element_stride != 0 || target.element_stride != 0) {
      CopyElements(plane, source, target, run.count);
    } else if (stream) {
      CopyRun<true>(plane, source, target, run.count);
    } else {
      CopyRun<false>(plane, source, target, run.count);
    }
  }
  if (stream) StreamEnd();
}

PositionMap::PositionMap(const GroupView& view, uint64_t begin, uint64_t count) {
  CAIRN_CHECK(begin >= view.position);
  entries_.resize(count);
  const uint64_t per_block = view.tokens_per_block;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t position = begin + i;
    Entry& entry = entries_[i];
    switch (view.table.kind) {
      case TableKind::kNone: {
        const uint64_t index = position - view.position;
        entry = per_block == 0 ? Entry{0, static_cast<int64_t>(index)}
                               : Entry{static_cast<int64_t>(index / per_block),
                                       static_cast<int64_t>(index % per_block)};
        break;
      }
      case TableKind::kBlocks: {
        const uint64_t index = position - view.table.table_position;
        entry = {TableEntry(view.table, index / per_block),
                 static_cast<int64_t>(index % per_block)};
        break;
      }
      case TableKind::kSlots: {
        const int64_t slot = TableEntry(view.table, position - view.table.table_position);
        const auto block_tokens = static_cast<int64_t>(per_block);
        entry = per_block == 0 ? Entry{0, slot} : Entry{slot / block_tokens, slot % block_tokens};
        break;
      }
    }
  }
}

void GatherSlice(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                 const PositionMap& map, std::byte* into) {
  CopyCanonical<true>(plane, view, layer_index, map, into, map.count(), 0);
}

void ScatterSlice(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                  const PositionMap& map, const std::byte* from, uint64_t from_count,
                  uint64_t from_first) {
  CAIRN_CHECK(from_first + map.count() <= from_count);
  // CopyCanonical<false> only reads what `canonical` points to.
  CopyCanonical<false>(plane, view, layer_index, map, const_cast<std::byte*>(from), from_count,
                       from_first);
}

void ScatterTurned(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                   const PositionMap& map, const std::byte* from, uint64_t from_count,
                   uint64_t from_first, const std::function<void(const RowRun&)>& turn) {
  CAIRN_CHECK(from_first + map.count() <= from_count);
  std::byte* const base = view.layer_bases[layer_index];
  const std::span<const PositionMap::Entry> entries = map.entries();
  const auto row_bytes = static_cast<ptrdiff_t>(plane.row_bytes);
  const auto element_bytes = static_cast<ptrdiff_t>(DtypeBytes(plane.dtype));
  const auto head_bytes = static_cast<ptrdiff_t>(from_count) * row_bytes;
  const ptrdiff_t element_stride = view.element_stride == 0 ? element_bytes : view.element_stride;
  for (uint64_t first = 0; first < entries.size();) {
    const uint64_t run = RunLength(entries, first);
    turn({.first = first,
          .count = run,
          .from = {from + static_cast<ptrdiff_t>(from_first + first) * row_bytes, row_bytes,
                   head_bytes, element_bytes},
          .into = {base + entries[first].block * view.block_stride +
                       entries[first].slot * view.token_stride,
                   view.token_stride, view.head_stride, element_stride}});
    first += run;
  }
}

}  // namespace cairn
