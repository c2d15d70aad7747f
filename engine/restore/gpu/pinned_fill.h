// SPDX-License-Identifier: Apache-2.0
//
// Adds frames of tables that a restore or a prefetch reads to pinned memory. A group is held until
// all its wanted frames have come. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/core/mutex.h"
#include "engine/restore/gpu/frame_groups.h"
#include "engine/restore/gpu/pinned_cache.h"
#include "engine/restore/plan/plan.h"

namespace cairn::engine {

class PinnedFill {
 public:
  // Everything is borrowed. `ahead`: a prefetch.
  PinnedFill(PinnedCache* cache, const RestorePlan& plan, std::span<const OpenPiece> open,
             bool ahead);

  // A verified frame with KV, of a piece whose entries were read.
  void Keep(const FrameJob& job, std::span<const std::byte> stored);

 private:
  struct Filling {
    PinnedCache::Group group;
    size_t left = 0;  // Wanted frames that did not come yet.
  };
  PinnedCache::Group Make(const OpenPiece& open, const FrameGroup& group);

  PinnedCache& cache_;
  const PinnedCache::BranchNeed need_;
  const std::span<const OpenPiece> open_;
  const bool ahead_;
  bool large_ = false;
  Mutex mutex_;
  // By piece and group. Null: it is not kept, or complete.
  std::map<std::pair<size_t, uint64_t>, Filling> filling_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn::engine
