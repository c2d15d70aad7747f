// SPDX-License-Identifier: Apache-2.0
//
// How rows pass through pinned memory, to a device or from it: in two rooms of staging memory, of
// which the host fills or empties one while the device works on the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "cairn/kv_view.h"
#include "cairn/model.h"

namespace cairn::engine {

// Cuts each slice, head by head, into stretches of rows that fit a room, and gives each to
// `add(&room, slice, head, first, rows)`. A room that is full is launched, and the one before it is
// collected; at the end both are. A Room has RowsLeft(row_bytes), Launch, Collect, empty and Swap.
// Not thread-safe: the rooms are the caller's. Waits for the device. Errors: those of the room.
template <typename Room, typename Slice, typename Add>
Status PassThroughRooms(const ModelSpec& model, const KvView& view, std::span<const Slice> slices,
                        Room* next, Room* flying, const Add& add) {
  for (const Slice& slice : slices) {
    const Plane& plane = model.groups[view.groups[slice.group].group].planes[slice.plane];
    for (uint32_t head = 0; head < plane.heads; ++head) {
      for (uint64_t first = 0; first < slice.count;) {
        const uint64_t rows = std::min(next->RowsLeft(plane.row_bytes), slice.count - first);
        if (rows == 0) {
          CAIRN_RETURN_IF_ERROR(next->Launch());
          CAIRN_RETURN_IF_ERROR(flying->Collect());
          next->Swap(flying);
          continue;
        }
        CAIRN_RETURN_IF_ERROR(add(next, slice, head, first, rows));
        first += rows;
      }
    }
  }
  if (!next->empty()) CAIRN_RETURN_IF_ERROR(next->Launch());
  CAIRN_RETURN_IF_ERROR(flying->Collect());
  return next->Collect();
}

}  // namespace cairn::engine
