// SPDX-License-Identifier: Apache-2.0
//
// Frames in pinned memory, for items that go to its GPU. Nothing is copied here: the sink makes the
// device fetch them.
#pragma once

#include <span>

#include "engine/restore/gpu/frame_groups.h"
#include "engine/restore/gpu/pinned_cache.h"
#include "engine/restore/plan/page_tier.h"

namespace cairn::engine {

class PinnedTier final : public PageTier {
 public:
  void Serve(std::span<ItemRun> items) override;

 private:
  struct Ask {
    ItemRun* item = nullptr;
    size_t piece = 0;
    FrameGroup group{};
    uint32_t layer = 0;  // Its first.
    PinnedCache::BranchNeed need{};
  };
  static void AddAsks(ItemRun* item, std::vector<Ask>* asks);
  static Status ServeGroup(const Ask& ask);
};

}  // namespace cairn::engine
