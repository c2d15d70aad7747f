// SPDX-License-Identifier: Apache-2.0
//
// exact. At the end of a step of generation: gathers the rows of a view into the slot of a ring
// that the step's plan names, or does nothing without a plan. EndStep, launched behind it, marks
// the slot and takes the plan away. So both may be in a graph that is launched again and again, and
// a launch without a plan saves nothing.
#pragma once

#include <cstdint>

#include "gpu/kernels/copy_rows.h"
#include "gpu/kernels/gather_save.h"
#include "gpu/kernels/paged_view.h"
#include "gpu/lane.h"

namespace cairn::gpu {

// The number of a step, which is not 0, in the low half, its slot in the high one. 0: no plan.
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
  const StepPlan* plan = nullptr;
  uint64_t slot_bytes = 0;
  uint32_t strips_count = 0, rows_count = 0;

  static constexpr uint32_t kSharedBytes = kPlacesBytes;  // For each warp of a block.
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const GatherStep& k) {
  const uint32_t index = at.block() * (at.threads() / kWarp) + at.warp();
  if (index >= k.strips_count + k.rows_count) return;
  const uint64_t plan = at.template Load<uint64_t>(k.plan);
  if (plan == 0) return;
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

struct EndStep {
  StepPlan* plan = nullptr;
  uint32_t* stamp = nullptr;  // In slot 0: the number of the step whose rows it holds.
  uint32_t* told = nullptr;   // In host memory: the last step that was saved.
  uint64_t slot_bytes = 0;
};

template <typename Lane>
CAIRN_GPU void Run(const Lane& at, const EndStep& k) {
  if (at.thread() != 0) return;
  const uint64_t plan = at.template Load<uint64_t>(k.plan);
  if (plan == 0) return;
  const auto number = static_cast<uint32_t>(plan);
  auto* const stamp = reinterpret_cast<uint8_t*>(k.stamp) + (plan >> 32) * k.slot_bytes;
  at.Store(stamp, number);
  at.Store(k.told, number);
  at.Store(k.plan, uint64_t{0});
}

}  // namespace cairn::gpu
