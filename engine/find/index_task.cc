// SPDX-License-Identifier: Apache-2.0
#include "engine/find/index_task.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "engine/find/constants.h"

namespace cairn::engine {

namespace {

// The ids of [at, upto), if these are the ids from `begin` on.
std::span<const TokenId> Within(std::span<const TokenId> ids, uint64_t begin, uint64_t at,
                                uint64_t upto) {
  const uint64_t first = std::max(begin, at), last = std::min(begin + ids.size(), upto);
  return first < last ? ids.subspan(first - begin, last - first) : std::span<const TokenId>();
}

}  // namespace

IndexTask::IndexTask(uint64_t node, const IndexedFrom& from, IndexedNode facts)
    : node_(node), facts_(std::move(facts)), ns_seed_(SeedOf(facts_.ns)) {
  if (!facts_.indexed) return;
  const bool all = from.prefixes <= facts_.start;
  below_ = facts_.begins_namespace && all ? 0 : std::max(from.prefixes, facts_.start);
  const uint64_t edge = facts_.start + 1;
  const bool has_edge = facts_.has_parent && all && edge > kPrefixBlock && edge <= facts_.end &&
                        edge % kPrefixBlock != 0;
  if (has_edge) edge_ = edge;
  const uint64_t last_block = facts_.end - facts_.end % kPrefixBlock;
  upto_ = std::max(last_block > below_ ? last_block : 0, edge_);
}

uint64_t IndexTask::begin_at_most() const {
  if (!has_prefixes()) return 0;
  return edge_ == 0 ? below_ : std::min(below_, facts_.start);
}

void IndexTask::Begin(const PathDigests::Place& known, const StoreId& store) {
  CAIRN_CHECK(!is_empty() && !chunks_.has_value() && known.end <= begin_at_most());
  chunks_.emplace(node_, ChunkSeed(store, facts_.model, ns_seed_), facts_.chunks, facts_.spans);
  at_ = chunks_->at() == chunks_->upto() ? known.end : chunks_->at();
  if (!has_prefixes()) return;
  hasher_.emplace(known.digest, known.end, facts_.spans);
  at_ = std::min(at_, known.end);
}

void IndexTask::Add(std::span<const TokenId> ids) {
  CAIRN_CHECK(ids.size() <= upto() - at_);
  if (has_prefixes()) AddPrefixes(Within(ids, at_, hasher_->end(), upto_));
  chunks_->Add(Within(ids, at_, chunks_->at(), chunks_->upto()), &entries_);
  at_ += ids.size();
}

void IndexTask::AddPrefixes(std::span<const TokenId> ids) {
  const uint64_t at = hasher_->end();
  if (edge_ > at && edge_ <= at + ids.size()) {
    const size_t before = edge_ - at;
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
  entries_.push_back({.hash = KeyHash(digest, ns_seed_),
                      .node = node_,
                      .position = end,
                      .kind = HintKind::kPrefix});
}

std::vector<HintEntry> IndexTask::TakeEntries() { return std::exchange(entries_, {}); }

}  // namespace cairn::engine
