// SPDX-License-Identifier: Apache-2.0
#include "engine/find/chunk_task.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace cairn::engine {

ChunkTask::ChunkTask(uint64_t node, uint64_t seed, NewChunks chunks,
                     std::span<const ContentSpan> spans)
    : node_(node), seed_(seed), chunks_(std::move(chunks)), spans_(spans) {
  if (chunks_.stretches.empty()) return;
  at_ = chunks_.stretches.front().begin;
  upto_ = chunks_.stretches.back().end;
}

void ChunkTask::Add(std::span<const TokenId> ids, std::vector<HintEntry>* entries) {
  CAIRN_CHECK(ids.size() <= upto_ - at_);
  while (!ids.empty()) {
    const ChunkStretch& stretch = chunks_.stretches[stretch_];
    const bool before = at_ < stretch.begin;
    const size_t count =
        std::min<uint64_t>(ids.size(), (before ? stretch.begin : stretch.end) - at_);
    if (!before) AddWithin(ids.first(count), entries);
    ids = ids.subspan(count);
    at_ += count;
    if (at_ < stretch.end) continue;
    ++stretch_;
    winnower_.reset();
  }
}

void ChunkTask::AddWithin(std::span<const TokenId> ids, std::vector<HintEntry>* entries) {
  if (!winnower_.has_value()) winnower_.emplace(at_);
  const auto spans = std::partition_point(spans_.begin(), spans_.end(),
                                          [&](const ContentSpan& span) { return span.end <= at_; });
  winnower_->Add(ids, {spans, spans_.end()}, [&](const Fingerprint& chosen) {
    if (chosen.window_end <= chunks_.from) return;  // Of ids that were there before.
    entries->push_back({.hash = ChunkKeyHash(chosen.value, seed_),
                        .node = node_,
                        .position = chosen.end,
                        .kind = HintKind::kChunk});
  });
}

}  // namespace cairn::engine
