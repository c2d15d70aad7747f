// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/pinned_fill.h"

#include <algorithm>
#include <vector>

#include "base/core/out_of_memory.h"

namespace cairn::engine {

PinnedFill::PinnedFill(PinnedCache* cache, const RestorePlan& plan, std::span<const OpenPiece> open,
                       bool ahead)
    : cache_(*cache), need_(cache->NeedOf(plan)), open_(open), ahead_(ahead) {
  uint64_t bytes = 0;
  for (const OpenPiece& piece : open) {
    bytes += piece.fragment.bytes() / piece.fragment.frames() * piece.frames();
  }
  large_ = bytes > cache_.passing_bytes();
}

// If there is no memory for it, it is not kept.
void PinnedFill::Keep(const FrameJob& job, std::span<const std::byte> stored) {
  const OpenPiece& open = open_[job.piece];
  const FrameGroup group = FrameGroups(open).Of(job.slice, job.page);
  PinnedCache::Group at;
  const Status found = CatchBadAlloc([&] {
    const MutexLock lock(&mutex_);
    const auto [place, added] = filling_.try_emplace({job.piece, group.name.group});
    Filling& filling = place->second;
    if (added) {
      filling.left = group.WantedFrames(open);
      filling.group = Make(open, group);
    }
    at = filling.group;
    if (--filling.left == 0) filling.group = nullptr;
    return Status::Ok();
  });
  if (!found.ok() || at == nullptr) return;
  if (at->Put(group.IndexOf(job.slice, job.page), stored)) {
    cache_.counters().promotions.fetch_add(1, std::memory_order_relaxed);
  }
}

PinnedCache::Group PinnedFill::Make(const OpenPiece& open, const FrameGroup& group) {
  std::vector<uint32_t> sizes;
  sizes.reserve(group.frames());
  for (uint32_t slice = group.first_slice; slice < group.end_slice; ++slice) {
    for (uint32_t page = group.first_page; page < group.end_page; ++page) {
      sizes.push_back(open.entry(slice, page).stored_bytes);
    }
  }
  const PinnedCache::Coming coming{
      .kept = need_.Keeps(group.end), .ahead = ahead_, .large = large_};
  return cache_.Make(group.name, open.fragment.frames_hash, sizes, coming, need_.ns);
}

}  // namespace cairn::engine
