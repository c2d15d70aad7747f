// SPDX-License-Identifier: Apache-2.0
//
// The kernels' description of a plane of a KvView, and the places of its positions. The formula is
// that of cairn/kv_view.h; gpu/describe.h makes these from a KvView.
#pragma once

#include <cstdint>

#include "gpu/lane.h"

namespace cairn::gpu {

// The view of one plane. `table` is memory that the device reads.
struct PagedView {
  const void* table = nullptr;  // Null: positions follow each other.
  bool is_64_bit = false;
  bool of_slots = false;          // Else its entries are blocks.
  uint32_t tokens_per_block = 0;  // 0: one endless block.
  uint32_t entries_end = 0;       // All entries are below; without a table 0.
  int64_t block_stride = 0;
  int64_t token_stride = 0;
  int64_t element_stride = 0;  // 0: elements are adjacent.
  uint32_t element_bytes = 1;
};

// Rows whose places a warp keeps in shared memory: two lines of kv64 with one channel, at least.
inline constexpr uint32_t kPlaces = 128;
inline constexpr uint32_t kPlacesBytes = kPlaces * sizeof(int64_t);
// For a row that nobody wants. No place has this value: a view reaches over half of all addresses
// at most.
inline constexpr int64_t kNowhere = INT64_MIN;

// Row r of a copy is entry `index + r` of the table (of the view, without one); the rows in [first,
// end) are wanted.
struct WantedRows {
  int64_t index = 0;
  uint32_t first = 0, end = 0;
};

// Distance of the position from the base. False: the table leads out of the view.
template <typename Lane>
CAIRN_GPU bool FindPlace(const Lane& at, const PagedView& view, uint32_t index, int64_t* place) {
  const uint32_t per_block = view.tokens_per_block;
  uint32_t block = 0, slot = index;
  if (view.table != nullptr) {
    const uint32_t entry_at = view.of_slots ? index : index / per_block;
    const uint64_t entry =
        view.is_64_bit
            ? at.template Load<uint64_t>(static_cast<const uint64_t*>(view.table) + entry_at)
            : at.template Load<uint32_t>(static_cast<const uint32_t*>(view.table) + entry_at);
    if (entry >= view.entries_end) return false;
    block = static_cast<uint32_t>(entry);
    slot = view.of_slots ? block : index % per_block;
  }
  if (view.table == nullptr || view.of_slots) {
    block = per_block == 0 ? 0 : slot / per_block;
    slot = per_block == 0 ? slot : slot % per_block;
  }
  *place = block * view.block_stride + slot * view.token_stride;
  return true;
}

// The places of kPlaces rows, in shared memory of a warp, which fills and reads them together.
struct Places {
  int64_t* of;
  uint32_t end = 0;   // The kPlaces rows before it are loaded; 0: none.
  bool lost = false;  // One of this lane's rows led out of the view.

  CAIRN_GPU int64_t Of(uint32_t row) const { return of[row + kPlaces - end]; }

  // Makes sure that the rows [row, row_end) are loaded: kPlaces at most, one at least.
  template <typename Lane>
  CAIRN_GPU void Need(const Lane& at, const PagedView& view, const WantedRows& wanted, uint32_t row,
                      uint32_t row_end) {
    if (row + kPlaces >= end && row_end <= end) return;
    at.SyncWarp();  // All lanes have read the old places.
    end = row + kPlaces;
    for (uint32_t i = at.lane(); i < kPlaces; i += kWarp) {
      int64_t place = kNowhere;
      const uint32_t r = row + i;
      if (r >= wanted.first && r < wanted.end &&
          !FindPlace(at, view, static_cast<uint32_t>(wanted.index + r), &place)) {
        lost = true;
      }
      of[i] = place;
    }
    at.SyncWarp();
  }
};

}  // namespace cairn::gpu
