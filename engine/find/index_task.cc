// SPDX-License-Identifier: Apache-2.0
#include "engine/find/index_task.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "engine/find/constants.h"

namespace cairn::engine {

IndexTask::IndexTask(uint64_t node, uint64_t from, IndexedNode facts)
    : node_(node), facts_(std::move(facts)), ns_seed_(SeedOf(facts_.ns)) {
  if (!facts_.indexed) return;
  const bool all = from <= facts_.start;
  below_ = facts_.begins_namespace && all ? 0 : std::max(from, facts_.start);
  const uint64_t edge = facts_.start + 1;
  const bool has_edge = facts_.has_parent && all && edge > kPrefixBlock && edge <= facts_.end &&
                        edge % kPrefixBlock != 0;
  if (has_edge) edge_ = edge;
  const uint64_t last_block = facts_.end - facts_.end % kPrefixBlock;
  upto_ = std::max(last_block > below_ ? last_block : 0, edge_);
}

uint64_t IndexTask::begin_at_most() const {
  return edge_ == 0 ? below_ : std::min(below_, facts_.start);
}

void IndexTask::Begin(const PathDigests::Place& known) {
  CAIRN_CHECK(!is_empty() && !hasher_.has_value() && known.end <= begin_at_most());
  hasher_.emplace(known.digest, known.end, facts_.spans);
}

void IndexTask::Add(std::span<const TokenId> ids) {
  CAIRN_CHECK(ids.size() <= upto_ - at());
  if (edge_ > at() && edge_ <= at() + ids.size()) {
    const size_t before = edge_ - at();
    AddUpTo(ids.first(before));
    Put(edge_, hasher_->At());
    ids = ids.subspan(before);
  }
  AddUpTo(ids);
}

void IndexTask::AddUpTo(std::span<const TokenId> ids) {
  hasher_->Add(ids, [this](uint64_t end, const Digest& digest) { EndBlock(end, digest); });
}

void IndexTask::EndBlock(uint64_t end, const Digest& digest) {
  while (facts_.path[step_].end < end) ++step_;
  const PathStep& step = facts_.path[step_];
  if (end % kRememberedTokens == 0 || end + kPrefixBlock > step.end) {
    places_.push_back({static_cast<uint64_t>(step.node), end, digest});
  }
  if (end > below_) Put(end, digest);
}

void IndexTask::Put(uint64_t end, const Digest& digest) {
  entries_.push_back({KeyHash(digest, ns_seed_), node_, end});
}

std::vector<PrefixEntry> IndexTask::TakeEntries() { return std::exchange(entries_, {}); }

}  // namespace cairn::engine
