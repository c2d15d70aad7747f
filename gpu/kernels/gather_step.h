// SPDX-License-Identifier: Apache-2.0
//
// exact. At the end of a step of generation: gathers the rows of a view into the slot of a ring
// which the host chose for the step, or does nothing. AdvanceStep, launched behind it, counts the
// steps, so that both may stand in a graph that is launched again and again.
#pragma once

#include <cstdint>

#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/gather_save.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

// What the host says of a step: its number in the low half, the slot in the high one. It stands
// where others stood before, so a step that nothing is said of finds another number.
using StepPlan = uint64_t;

// Rows of a view in the slot: 1 where the table names a place, else 0.
struct RowsThere {
  uint8_t* there = nullptr;  // In slot 0.
  WantedRows wanted{};
  uint32_t view = 0;
};

struct GatherStep {
  const StripToGather* strips = nullptr;  // `into` is in slot 0.
  const RowsThere* rows = nullptr;
  const PagedView* views = nullptr;
  const StepPlan* plans = nullptr;  // Of step n at n & plans_mask; memory of the host.
  const uint32_t* step = nullptr;   // How many steps came before.
  uint64_t slot_bytes = 0;
  uint32_t plans_mask = 0;
  uint32_t strips_count = 0, rows_count = 0;

  static constexpr uint32_t kSharedBytes = kPlacesBytes;  // For each warp of a block.
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const GatherStep& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  if (index >= k.strips_count + k.rows_count) return;
  const uint32_t step = at.template Load<uint32_t>(k.step);
  const uint64_t plan = at.template Load<uint64_t>(k.plans + (step & k.plans_mask));
  if (static_cast<uint32_t>(plan) != step) return;
  const uint64_t slot_at = (plan >> 32) * k.slot_bytes;
  if (index < k.strips_count) {
    const StripToGather& s = k.strips[index];
    Places places{at.template Shared<int64_t>(at.warp() * GatherStep::kSharedBytes)};
    CopyRows<false>(at, k.views[s.view], {const_cast<uint8_t*>(s.base), s.row_bytes},
                    {s.into + slot_at, s.row_bytes, s.row_bytes}, s.wanted, s.unit, places);
    return;
  }
  const RowsThere& r = k.rows[index - k.strips_count];
  for (uint32_t row = r.wanted.first + at.lane(); row < r.wanted.end; row += kWarp) {
    int64_t place = 0;
    const bool there =
        FindPlace(at, k.views[r.view], static_cast<uint32_t>(r.wanted.index + row), &place);
    at.Store(r.there + slot_at + row, static_cast<uint8_t>(there ? 1 : 0));
  }
}

struct AdvanceStep {
  uint32_t* step = nullptr;
  uint32_t* told = nullptr;  // The same, in memory of the host.
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const AdvanceStep& k) {
  if (at.thread() != 0) return;
  const uint32_t next = at.template Load<uint32_t>(k.step) + 1;
  at.Store(k.step, next);
  at.Store(k.told, next);
}

}  // namespace cairn::gpu
