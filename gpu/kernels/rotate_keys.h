// SPDX-License-Identifier: Apache-2.0
//
// exact. Turns keys in place in the blocks of a view, as Rotation::Turn does: a warp for the rows
// of one head of a page, which decode_scatter put there before, in the same stream. Rows that a
// table leads out of the view are left alone; decode_scatter reports them.
#pragma once

#include <cstdint>

#include "base/codec/float16.h"
#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct RowsToTurn {
  uint8_t* base = nullptr;       // The base of layer and head.
  const float* turns = nullptr;  // Cosine and sine, [row - wanted.first][pair].
  WantedRows wanted{};
  uint32_t view = 0;               // Which.
  uint32_t pairs = 0, window = 0;  // Pairs of elements, from element `window` on:
  bool adjacent = false;           // 2i and 2i + 1, or i and i + pairs.
  bool fp16 = false;               // Of elements of 16 bits; else they are bf16.
  uint8_t unit = 1;                // FrameToScatter::unit
};

struct RotateKeys {
  const RowsToTurn* rows = nullptr;
  const PagedView* views = nullptr;
  uint32_t count = 0;

  // For each warp of a block.
  static constexpr uint32_t kSharedBytes = kPlacesBytes;
};

// A turn that gives a NaN gives this one (base/codec/rotary.h).
inline constexpr uint32_t kTurnedNan = 0x7FC00000;

template <typename Lane>
CAIRN_GPU float LoadElement(const Lane& at, const RowsToTurn& t, uint32_t bytes,
                            const uint8_t* from) {
  uint32_t bits = 0;
  if (t.unit < bytes) {
    for (uint32_t i = 0; i < bytes; ++i) bits |= uint32_t{from[i]} << 8 * i;
  } else {
    bits = bytes == 4 ? at.template Load<uint32_t>(from) : at.template Load<uint16_t>(from);
  }
  return bytes == 4 ? FloatOfBits(bits) : Widened(t.fp16, static_cast<uint16_t>(bits));
}

template <typename Lane>
CAIRN_GPU void StoreElement(const Lane& at, const RowsToTurn& t, uint32_t bytes, float value,
                            uint8_t* into) {
  if (value != value) value = FloatOfBits(kTurnedNan);
  const uint32_t bits = bytes == 4 ? BitsOfFloat(value) : Narrowed(t.fp16, value);
  if (t.unit < bytes) {
    for (uint32_t i = 0; i < bytes; ++i) into[i] = static_cast<uint8_t>(bits >> 8 * i);
  } else if (bytes == 4) {
    at.Store(into, bits);
  } else {
    at.Store(into, static_cast<uint16_t>(bits));
  }
}

template <typename Lane>
CAIRN_GPU void TurnPair(const Lane& at, const PagedView& view, const RowsToTurn& t, uint32_t pair,
                        const float* turn, uint8_t* row) {
  const float cos = turn[0], sin = turn[1];
  if (cos == 1.0F && sin == 0.0F) return;
  const uint32_t bytes = view.element_bytes;
  const uint32_t first = t.window + (t.adjacent ? 2 * pair : pair);
  const uint32_t second = first + (t.adjacent ? 1 : t.pairs);
  uint8_t* const x_at = row + InRow(view, first * bytes);
  uint8_t* const y_at = row + InRow(view, second * bytes);
  const float x = LoadElement(at, t, bytes, x_at), y = LoadElement(at, t, bytes, y_at);
  StoreElement(at, t, bytes, x * cos - y * sin, x_at);
  StoreElement(at, t, bytes, y * cos + x * sin, y_at);
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const RotateKeys& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  if (index >= k.count) return;
  const RowsToTurn& t = k.rows[index];
  const PagedView& view = k.views[t.view];
  Places places{at.template Shared<int64_t>(at.warp() * RotateKeys::kSharedBytes)};
  for (uint32_t row = t.wanted.first; row < t.wanted.end;) {
    const uint32_t rows = t.wanted.end - row < kPlaces ? t.wanted.end - row : kPlaces;
    places.Need(at, view, t.wanted, row, row + rows);
    // kMaxFrameRawBytes keeps this count below 2^32.
    for (uint32_t i = at.lane(); i < rows * t.pairs; i += kWarp) {
      const uint32_t r = i / t.pairs, pair = i - r * t.pairs;
      const int64_t place = places.Of(row + r);
      if (place == kNowhere) continue;
      const uint64_t turn = uint64_t{row - t.wanted.first + r} * t.pairs + pair;
      TurnPair(at, view, t, pair, t.turns + 2 * turn, t.base + place);
    }
    row += rows;
  }
}

}  // namespace cairn::gpu
