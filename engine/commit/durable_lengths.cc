// SPDX-License-Identifier: Apache-2.0
#include "engine/commit/durable_lengths.h"

#include <new>

#include "engine/config/constants.h"

namespace cairn::engine {

// Drops lengths that are durable up to `sequence`, except the newest of them.
void DurableLengths::Lengths::Advance(uint64_t sequence) {
  size_t passed = 0;
  while (passed + 1 < pending.size() && pending[passed].first <= sequence) {
    durable = pending[passed++].second;
  }
  pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(passed));
}

void DurableLengths::Record(BranchId branch, uint64_t before, uint64_t length, uint64_t sequence,
                            uint64_t durable) {
  try {
    RecordOrThrow(branch, before, length, sequence, durable);
  } catch (const std::bad_alloc&) {
    branches_.erase(branch);
    unknown_until_ = sequence;
  }
}

void DurableLengths::RecordOrThrow(BranchId branch, uint64_t before, uint64_t length,
                                   uint64_t sequence, uint64_t durable) {
  Sweep(durable);
  const auto [found, first] = branches_.try_emplace(branch);
  Lengths& lengths = found->second;
  if (first) {
    to_look_at_.emplace_back(sequence, branch);
    lengths.durable = durable < unknown_until_ ? 0 : before;
  } else {
    lengths.Advance(durable);
    if (const auto& [newest, reached] = lengths.pending.back(); newest <= durable) {
      lengths.durable = reached;
      lengths.pending.pop_back();
    }
  }
  if (lengths.pending.size() >= kLengthsTrackedMax) lengths.pending.pop_back();
  lengths.pending.emplace_back(sequence, length);
}

std::optional<uint64_t> DurableLengths::Of(BranchId branch, uint64_t durable) const {
  const auto found = branches_.find(branch);
  if (found == branches_.end()) {
    return durable < unknown_until_ ? std::optional<uint64_t>(0) : std::nullopt;
  }
  if (found->second.pending.back().first <= durable) return std::nullopt;
  uint64_t length = found->second.durable;
  for (const auto& [sequence, reached] : found->second.pending) {
    if (sequence <= durable) length = reached;
  }
  return length;
}

// Examines a few at a time, more than are added.
void DurableLengths::Sweep(uint64_t durable) {
  for (uint32_t step = 0; step < kLengthsSwept; ++step) {
    if (to_look_at_.empty() || to_look_at_.front().first > durable) return;
    const BranchId branch = to_look_at_.front().second;
    const auto found = branches_.find(branch);
    if (found != branches_.end()) {
      const uint64_t newest = found->second.pending.back().first;
      if (newest <= durable) {
        branches_.erase(found);
      } else {
        to_look_at_.emplace_back(newest, branch);
      }
    }
    to_look_at_.pop_front();
  }
}

}  // namespace cairn::engine
