// SPDX-License-Identifier: Apache-2.0
//
// exact. A warp copies rows between a view and memory where they follow each other, in units that
// both sides are aligned to.
#pragma once

#include <cstdint>

#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

// Rows are copied in units of 1 to 16 bytes.
inline constexpr uint32_t kLargestUnit = sizeof(Bytes16);

// The side without a table: byte b of row r lies at r * row_stride + b modulo `period`, which is a
// row's bytes, or an element's.
struct StraightRows {
  const uint8_t* from = nullptr;
  uint32_t row_stride = 0;
  uint32_t period = 1;
};

// One head of a view, and rows of `row_bytes` there.
struct HeadRows {
  uint8_t* base = nullptr;
  uint32_t row_bytes = 0;
};

// Where byte `byte` of a row lies in the row of the view.
CAIRN_GPU int64_t InRow(const PagedView& view, uint32_t byte) {
  if (view.element_stride == 0) return byte;
  const uint32_t element = byte / view.element_bytes;
  return element * view.element_stride + (byte - element * view.element_bytes);
}

template <bool kToView, typename Unit, typename Lane>
CAIRN_GPU void CopyUnits(const Lane& at, const PagedView& view, const HeadRows& head,
                         const StraightRows& straight, const WantedRows& wanted, Places& places) {
  const uint32_t units = head.row_bytes / sizeof(Unit);
  for (uint32_t row = wanted.first; row < wanted.end;) {
    const uint32_t rows = wanted.end - row < kPlaces ? wanted.end - row : kPlaces;
    places.Need(at, view, wanted, row, row + rows);
    // kMaxFrameRawBytes keeps this count below 2^32.
    for (uint32_t i = at.lane(); i < rows * units; i += kWarp) {
      const uint32_t r = i / units, u = i - r * units;
      const int64_t place = places.Of(row + r);
      if (place == kNowhere) continue;
      const uint32_t byte = u * sizeof(Unit);
      uint8_t* const there = head.base + place + InRow(view, byte);
      const uint8_t* const here = straight.from + uint64_t{row + r} * straight.row_stride +
                                  (byte < straight.period ? byte : byte % straight.period);
      if constexpr (kToView) {
        at.Store(there, at.template Load<Unit>(here));
      } else {
        at.Store(const_cast<uint8_t*>(here), at.template Load<Unit>(there));
      }
    }
    row += rows;
  }
}

// `unit`: the alignment of the view's side, which also divides its rows.
template <bool kToView, typename Lane>
CAIRN_GPU void CopyRows(const Lane& at, const PagedView& view, const HeadRows& head,
                        const StraightRows& straight, const WantedRows& wanted, uint32_t unit,
                        Places& places) {
  const auto here = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(straight.from));
  const uint32_t bits = unit | here | straight.row_stride | straight.period;
  // The lowest bit that is set.
  switch (bits & (0u - bits)) {
    case 1: return CopyUnits<kToView, uint8_t>(at, view, head, straight, wanted, places);
    case 2: return CopyUnits<kToView, uint16_t>(at, view, head, straight, wanted, places);
    case 4: return CopyUnits<kToView, uint32_t>(at, view, head, straight, wanted, places);
    case 8: return CopyUnits<kToView, uint64_t>(at, view, head, straight, wanted, places);
    default: return CopyUnits<kToView, Bytes16>(at, view, head, straight, wanted, places);
  }
}

}  // namespace cairn::gpu
