// SPDX-License-Identifier: Apache-2.0
#include "engine/restore/gpu/pinned_tier.h"

#include <algorithm>
#include <vector>

#include "base/core/out_of_memory.h"
#include "engine/restore/gpu/gpu_target.h"

namespace cairn::engine {

// Layer by layer, so that the first layers are complete first. If a served frame cannot be launched
// for want of memory, its item ends.
void PinnedTier::Serve(std::span<ItemRun> items) {
  std::vector<Ask> asks;
  for (ItemRun& item : items) AddAsks(&item, &asks);
  std::stable_sort(asks.begin(), asks.end(),
                   [](const Ask& a, const Ask& b) { return a.layer < b.layer; });
  for (const Ask& ask : asks) {
    if (ask.item->outcome.ended() || ask.item->outcome.Cancelled()) continue;
    Status served = CatchBadAlloc([&] { return ServeGroup(ask); });
    if (!served.ok()) ask.item->outcome.End(std::move(served));
  }
  for (ItemRun& item : items) {
    if (item.taker == nullptr || item.outcome.ended()) continue;
    Status done = CatchBadAlloc([&] { return item.taker->PinnedDone(); });
    if (!done.ok()) item.outcome.End(std::move(done));
  }
}

void PinnedTier::AddAsks(ItemRun* item, std::vector<Ask>* asks) {
  if (item->taker == nullptr || item->outcome.ended()) return;
  const PinnedCache::BranchNeed need = item->gpu->cache()->NeedOf(item->plan);
  for (size_t i = 0; i < item->open.size(); ++i) {
    OpenPiece& open = item->open[i];
    if (open.piece.lane == kTokenLane || open.is_state()) continue;
    if (!open.small()) open.cached.resize(open.frames());
    FrameGroups(open).ForEachWanted([&](const FrameGroup& group) {
      asks->push_back({item, i, group, group.first_slice / open.layout.slices_per_layer(), need});
    });
  }
}

// All wanted frames of a small fragment, or none: missing ones are read with all of it.
Status PinnedTier::ServeGroup(const Ask& ask) {
  OpenPiece& open = ask.item->open[ask.piece];
  PinnedCache& cache = *ask.item->gpu->cache();
  const FrameGroup& group = ask.group;
  const size_t wanted = group.WantedFrames(open);
  const PinnedCache::Group found =
      cache.Find(group.name, open.fragment.frames_hash, ask.need.Keeps(group.end), ask.need.ns);
  struct Frame {
    FrameJob job;
    std::span<const std::byte> stored;
  };
  std::vector<Frame> frames;
  if (found != nullptr) {
    group.ForEachWanted(open, [&](uint32_t slice, uint32_t page) {
      const std::span<const std::byte> stored = found->Find(group.IndexOf(slice, page));
      if (!stored.empty()) frames.push_back({{ask.piece, slice, page}, stored});
    });
  }
  if (open.small() && frames.size() < wanted) frames.clear();
  cache.counters().misses.fetch_add(wanted - frames.size(), std::memory_order_relaxed);
  const std::shared_ptr<const void> owner = found;
  for (const Frame& frame : frames) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes,
                           ask.item->taker->Pinned(frame.job, ReadBytes(frame.stored, &owner)));
    ask.item->hits.pinned_bytes += bytes;
    ++ask.item->hits.pinned_frames;
    --open.missing;
    if (open.small()) continue;
    open.cached[open.IndexOfWanted(frame.job.slice, frame.job.page)] = OpenPiece::kPinned;
    ask.item->outcome.JobDone();
  }
  if (open.small() && !frames.empty()) ask.item->outcome.JobDone();
  return Status::Ok();
}

}  // namespace cairn::engine
