// SPDX-License-Identifier: Apache-2.0
//
// exact. Unpacks KV frames of every codec, a warp for each, straight into the blocks of a view.
// Errors of DecodeFrame are faults here: such a frame leaves rubbish in its wanted rows and nothing
// anywhere else.
#pragma once

#include <cstdint>

#include "base/codec/kv_frame.h"
#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/kv64.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct DecodeScatter {
  const FrameToScatter* frames = nullptr;
  const PagedView* views = nullptr;
  Fault* faults = nullptr;  // One per frame.
  uint32_t count = 0;

  // For each warp of a block.
  static constexpr uint32_t kSharedBytes = kKv64TableBytes + kPlacesBytes;
};

// The element of an int8 code (internal::DecodeInt8).
template <typename Lane>
CAIRN_GPU uint32_t Int8Element(const Lane& at, bool fp16, uint32_t code, uint32_t scale) {
  const uint32_t mantissa_bits = fp16 ? 10 : 7;
  const uint32_t units = code < 0x80 ? code : 0x100 - code;
  const uint32_t width = at.BitWidth(units);
  uint32_t bits = 0;
  if (width != 0 && width + scale <= mantissa_bits) {  // Subnormal.
    bits = units << scale;
  } else if (width != 0) {
    bits = ((width + scale - mantissa_bits - 1) << mantissa_bits) +
           (units << (mantissa_bits + 1 - width));
  }
  return bits | (code < 0x80 ? 0 : 0x8000);
}

template <typename Lane>
CAIRN_GPU Fault ScatterInt8(const Lane& at, const PagedView& view, const FrameToScatter& f,
                            Places& places) {
  const bool by_row = (f.flags & kFrameRowScales) != 0;
  const uint32_t scales = by_row ? f.rows : f.channels;
  if (f.payload_bytes != scales + f.rows * f.channels) return Fault::kLength;
  const uint32_t largest_scale = f.fp16 ? 33 : 254;
  bool bad = false;
  for (uint32_t i = at.lane(); i < scales; i += kWarp) bad = bad || f.payload[i] > largest_scale;
  if (at.Ballot(bad) != 0) return Fault::kScale;
  const uint8_t* const codes = f.payload + scales;
  for (uint32_t row = 0; row < f.rows; row += kPlaces) {
    const uint32_t rows = f.rows - row < kPlaces ? f.rows - row : kPlaces;
    places.Need(at, view, f.wanted, row, row + rows);
    for (uint32_t i = at.lane(); i < rows * f.channels; i += kWarp) {
      const uint32_t r = row + i / f.channels, c = i % f.channels;
      const uint32_t code = codes[uint64_t{r} * f.channels + c];
      bad = bad || code == 0x80;
      const int64_t place = places.Of(r);
      if (place == kNowhere) continue;
      const uint32_t element = Int8Element(at, f.fp16, code, f.payload[by_row ? r : c]);
      uint8_t* const there = f.base + place + InRow(view, 2 * c);
      if (f.unit >= 2) {
        at.Store(there, static_cast<uint16_t>(element));
      } else {
        there[0] = static_cast<uint8_t>(element);
        there[1] = static_cast<uint8_t>(element >> 8);
      }
    }
  }
  return at.Ballot(bad) != 0 ? Fault::kCode : Fault::kNone;
}

// Rows as they are, or (const) one element or one row for all.
template <typename Lane>
CAIRN_GPU Fault ScatterBytes(const Lane& at, const PagedView& view, const FrameToScatter& f,
                             Places& places) {
  const uint32_t row_bytes = f.channels * view.element_bytes;
  StraightRows straight{f.payload, row_bytes, row_bytes};
  if (f.codec == FrameCodec::kConst) {
    straight.row_stride = 0;
    straight.period = f.payload_bytes;
    if (f.payload_bytes != row_bytes && f.payload_bytes != view.element_bytes) {
      return Fault::kLength;
    }
  } else if (f.payload_bytes != f.rows * row_bytes) {
    return Fault::kLength;
  }
  CopyRows<true>(at, view, {f.base, row_bytes}, straight, f.wanted, f.unit, places);
  return Fault::kNone;
}

template <bool kFp16, bool kFolded, typename Lane>
CAIRN_GPU Fault ScatterKv64(const Lane& at, const PagedView* views, const FrameToScatter& f,
                            uint32_t* table, Places& places) {
  Kv64Decoder<kFp16, kFolded> decoder;
  return decoder.Run(at, views, f, table, places);
}

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const DecodeScatter& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  if (index >= k.count) return;
  const FrameToScatter& f = k.frames[index];
  const PagedView& view = k.views[f.view];
  const uint32_t shared = at.warp() * DecodeScatter::kSharedBytes;
  auto* const table = at.template Shared<uint32_t>(shared);
  Places places{at.template Shared<int64_t>(shared + kKv64TableBytes)};
  Fault fault;
  const bool folded = (f.flags & kFrameFoldedSigns) != 0;
  if (f.codec == FrameCodec::kInt8) {
    fault = ScatterInt8(at, view, f, places);
  } else if (f.codec != FrameCodec::kKv64) {
    fault = ScatterBytes(at, view, f, places);
  } else if (f.fp16) {
    fault = folded ? ScatterKv64<true, true>(at, k.views, f, table, places)
                   : ScatterKv64<true, false>(at, k.views, f, table, places);
  } else {
    fault = folded ? ScatterKv64<false, true>(at, k.views, f, table, places)
                   : ScatterKv64<false, false>(at, k.views, f, table, places);
  }
  if (at.Ballot(places.lost) != 0 && fault == Fault::kNone) fault = Fault::kTable;
  if (at.lane() == 0) k.faults[index] = fault;
}

}  // namespace cairn::gpu
