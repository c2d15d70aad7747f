// SPDX-License-Identifier: Apache-2.0
//
// exact. Copies the pieces that ResolveSlots gave a slot out of pages of host memory, which the
// device reads over the bus: a warp for each piece, 16 bytes per thread at a time.
#pragma once

#include <cstdint>

#include "gpu/kernels/resolve_slots.h"
#include "gpu/lane.h"

namespace cairn::gpu {

inline constexpr uint32_t kPiecePlanesMax = 2;

// The pieces of one plane. In a page piece p of the page lies at `page_offset` + p * `bytes`, in a
// row's buffer slot s at s * `bytes`.
struct PiecePlane {
  uint32_t page_offset = 0;
  uint32_t bytes = 0;  // A multiple of 16, like all addresses.
};

// The buffer of a row, by plane.
struct PieceBuffer {
  uint8_t* plane[kPiecePlanesMax] = {nullptr, nullptr};
};

struct GatherPieces {
  const SlotRow* rows = nullptr;
  const PieceBuffer* buffers = nullptr;  // One per row.
  PiecePlane planes[kPiecePlanesMax];
  uint32_t plane_count = 1;
  uint32_t row_count = 0;
  uint32_t count_max = 0;  // The largest of all rows.
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const GatherPieces& k) {
  const uint32_t warp = at.block() * (at.threads() / kWarp) + at.warp();
  const uint32_t row_index = warp / k.count_max, i = warp % k.count_max;
  if (row_index >= k.row_count) return;
  const SlotRow& row = k.rows[row_index];
  if (i >= *row.count || row.source[i] == kNoPage) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the host stores addresses as numbers.
  const auto* const page = reinterpret_cast<const uint8_t*>(row.source[i]);
  const uint64_t piece = row.wanted[i] % row.pieces_of_page;
  const auto slot = static_cast<uint64_t>(row.slot_of[i]);
  CAIRN_UNROLL
  for (uint32_t p = 0; p < kPiecePlanesMax; ++p) {
    if (p >= k.plane_count) break;
    const PiecePlane& plane = k.planes[p];
    const uint8_t* const from = page + plane.page_offset + piece * plane.bytes;
    uint8_t* const to = k.buffers[row_index].plane[p] + slot * plane.bytes;
    for (uint32_t at_byte = at.lane() * sizeof(Bytes16); at_byte < plane.bytes;
         at_byte += kWarp * sizeof(Bytes16)) {
      at.Store(to + at_byte, at.template Load<Bytes16>(from + at_byte));
    }
  }
}

}  // namespace cairn::gpu
