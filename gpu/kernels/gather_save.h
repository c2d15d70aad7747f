// SPDX-License-Identifier: Apache-2.0
//
// exact. Gathers rows from the blocks of a view to where they follow each other, as GatherSlice of
// base/codec does: a warp for each strip, which is one head of a layer of a plane.
#pragma once

#include <cstdint>

#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/kv64.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

struct StripToGather {
  const uint8_t* base = nullptr;  // The base of layer and head in the view.
  uint8_t* into = nullptr;        // Row r goes to r * row_bytes.
  WantedRows wanted{};
  uint32_t row_bytes = 0;
  uint32_t view = 0;
  uint8_t unit = 1;
};

struct GatherSave {
  const StripToGather* strips = nullptr;
  const PagedView* views = nullptr;
  Fault* faults = nullptr;  // One a strip: none, or of the table.
  uint32_t count = 0;

  static constexpr uint32_t kSharedBytes = kPlacesBytes;  // For each warp of a block.
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const GatherSave& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  if (index >= k.count) return;
  const StripToGather& s = k.strips[index];
  const PagedView& view = k.views[s.view];
  Places places{at.template Shared<int64_t>(at.warp() * GatherSave::kSharedBytes)};
  CopyRows<false>(at, view, {const_cast<uint8_t*>(s.base), s.row_bytes},
                  {s.into, s.row_bytes, s.row_bytes}, s.wanted, s.unit, places);
  const bool lost = at.Ballot(places.lost) != 0;
  if (at.lane() == 0) k.faults[index] = lost ? Fault::kTable : Fault::kNone;
}

}  // namespace cairn::gpu
