// SPDX-License-Identifier: Apache-2.0
//
// Copies KV between a caller's memory, described by a GroupView, and the canonical order
// [plane][head][position][row] of one layer. Pure; touches exactly the bytes described.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/codec/rotary_table.h"
#include "cairn/kv_view.h"

namespace cairn {

// The place of each position of a stretch, by the block table; the same for all layers and planes.
class PositionMap {
 public:
  // Positions [begin, begin + count) must be within the (validated) view.
  PositionMap(const GroupView& view, uint64_t begin, uint64_t count);
  uint64_t count() const { return entries_.size(); }

  struct Entry {
    int64_t block;
    int64_t slot;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// Bytes of `count` positions of one layer of a plane in canonical order.
inline uint64_t SliceBytes(const Plane& plane, uint64_t count) {
  return uint64_t{plane.heads} * count * plane.row_bytes;
}

// view -> canonical: `into` holds SliceBytes(plane, map.count()).
void GatherSlice(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                 const PositionMap& map, std::byte* into);

// canonical -> view: `from` is a slice of `from_count` positions, of which those from `from_first`
// on are copied to the map's positions.
void ScatterSlice(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                  const PositionMap& map, const std::byte* from, uint64_t from_count,
                  uint64_t from_first);

// The same for one head alone: rows of the places `entries`, which follow each other in `rows`.
void GatherHead(const Plane& plane, const PlaneView& view, uint32_t layer_index, uint32_t head,
                std::span<const PositionMap::Entry> entries, std::byte* rows);
void ScatterHead(const Plane& plane, const PlaneView& view, uint32_t layer_index, uint32_t head,
                 std::span<const PositionMap::Entry> entries, const std::byte* rows);

// Positions whose places follow each other in both of two views.
struct PairedRun {
  PositionMap::Entry from{}, into{};  // The places of the first.
  uint64_t count = 0;
};
// REQUIRES: both have the same number of positions.
std::vector<PairedRun> PairRuns(const PositionMap& from, const PositionMap& into);

// view -> view, all heads of the runs' positions; the memories do not overlap. `stream`: the slice
// is part of a copy that is larger than the caches (stream_copy.h).
void CopySlice(const Plane& plane, const PlaneView& from, const PlaneView& into,
               uint32_t layer_index, std::span<const PairedRun> runs, bool stream);

// Rows of all heads of `count` positions, from the map's entry `first` on, whose places in the view
// follow each other.
struct RowRun {
  uint64_t first = 0, count = 0;
  RotaryRows<const std::byte> from{};
  RotaryRows<std::byte> into{};
};
// As ScatterSlice, but `turn` writes the rows: it is called for one run after the other.
void ScatterTurned(const Plane& plane, const PlaneView& view, uint32_t layer_index,
                   const PositionMap& map, const std::byte* from, uint64_t from_count,
                   uint64_t from_first, const std::function<void(const RowRun&)>& turn);

}  // namespace cairn
