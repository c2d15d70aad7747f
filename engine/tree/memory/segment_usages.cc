// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/segment_usages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"

namespace cairn::engine {

const SegmentUsage* SegmentUsages::Find(uint64_t segment) const {
  const auto found = segments_.find(segment);
  return found == segments_.end() ? nullptr : &found->second;
}

void SegmentUsages::Reserve(size_t more) {
  room_.reserve(more);
  while (room_.size() < more) {
    Segments one;
    one.try_emplace(0);
    room_.push_back(one.extract(one.begin()));
  }
}

void SegmentUsages::Count(uint64_t segment, uint64_t bytes, uint64_t kv_extents, int sign) {
  if (!Counts(segment)) return;
  if (!CAIRN_KEPT(kLiveBytes) && sign < 0) return;
  auto found = segments_.find(segment);
  if (found == segments_.end()) {
    if (sign < 0) return;  // The index said that nothing of it is needed.
    CAIRN_CHECK(!room_.empty());
    room_.back().key() = segment;
    room_.back().mapped() = SegmentUsage();
    found = segments_.insert(std::move(room_.back())).position;
    room_.pop_back();
  }
  SegmentUsage& use = found->second;
  use.dirty = true;
  if (sign > 0) {
    use.live_bytes += bytes;
    use.most_live_bytes = std::max(use.most_live_bytes, use.live_bytes);
    use.kv_extents += kv_extents;
    return;
  }
  if (segment < log_start_) died_bytes_ += bytes;
  use.lied |= use.live_bytes < bytes || use.kv_extents < kv_extents;
  use.live_bytes -= std::min(use.live_bytes, bytes);
  use.kv_extents -= std::min(use.kv_extents, kv_extents);
}

void SegmentUsages::MarkFlushed() {
  for (auto at = segments_.begin(); at != segments_.end();) {
    at->second.dirty = false;
    at = at->second.live_bytes == 0 ? segments_.erase(at) : std::next(at);
  }
}

}  // namespace cairn::engine
