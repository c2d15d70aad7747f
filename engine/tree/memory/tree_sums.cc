// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/tree_sums.h"

#include <algorithm>

#include "base/core/check.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

uint64_t PositionBytes(const ModelSpec& model, size_t lane) {
  return lane == kTokenLane ? sizeof(TokenId) : model.groups[lane - 1].token_bytes();
}

const NamespaceUsage* TreeSums::FindNamespace(std::string_view ns) const {
  const auto it = namespaces_.find(ns);
  return it == namespaces_.end() ? nullptr : &it->second;
}

namespace {

// Whether the index alone may have it. Namespaces of objects are listed and filled from memory.
bool MayLeave(std::string_view ns, const NamespaceUsage& use) {
  return use.users == 0 && use.coalesced_bytes == 0 && use.policy == NamespacePolicy() &&
         !IsReserved(ns);
}

}  // namespace

void TreeSums::TakeStock(std::string_view ns, const NamespaceUsage& use) {
  held_bytes_ += use.bytes;
  if (MayLeave(ns, use)) {
    ++unloaded_;
  } else {
    namespaces_.emplace(ns, use);
  }
}

void TreeSums::Load(const std::string& ns, const NamespaceUsage& use) {
  CAIRN_CHECK(unloaded_ > 0);
  const bool added = namespaces_.emplace(ns, use).second;
  CAIRN_CHECK(added);
  --unloaded_;
}

void TreeSums::CountBranch(NamespaceUsage* use, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});  // Modulo 2^64.
  counts_.branches += factor;
  use->branches += factor;
}

void TreeSums::CountNode(NamespaceUsage* use, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});
  counts_.nodes += factor;
  use->nodes += factor;
}

void TreeSums::CountLanes(const Node& node, const ModelSpec& model, int sign) {
  const auto factor = static_cast<uint64_t>(int64_t{sign});
  uint64_t raw_bytes = 0;
  for (size_t i = 0; i < node.lanes.size(); ++i) {
    const Lane& lane = node.lanes[i];
    const uint64_t position_bytes = PositionBytes(model, i);
    raw_bytes += (lane.end - lane.start - lane.absent) * position_bytes;
    if (i == kTokenLane) {
      counts_.tokens += factor * (lane.end - lane.start);
      continue;
    }
    counts_.kv_lanes += factor * (lane.extents.empty() ? 0 : 1);
    counts_.kv_extents += factor * lane.extents.size();
    counts_.evicted_bytes += factor * lane.evicted * position_bytes;
  }
  counts_.raw_bytes += factor * raw_bytes;
  CountHeld(node.use, factor * raw_bytes);
  node.use->dirty = true;
}

void TreeSums::CountCoalesced(const std::string& ns, uint64_t bytes, int sign) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return;
  uint64_t& coalesced = found->second.coalesced_bytes;
  // The tree may have been replaced meanwhile, after a poisoning.
  coalesced = sign > 0 ? coalesced + bytes : coalesced - std::min(coalesced, bytes);
}

void TreeSums::CountEviction(const std::string& ns) {
  const auto found = namespaces_.find(ns);
  if (found != namespaces_.end()) ++found->second.evictions;
}

void TreeSums::RecordExpiry(const Head& head) {
  const uint64_t at = head.expires_at_ns();
  if (at != 0 && (expires_from_ns_ == 0 || at < expires_from_ns_)) expires_from_ns_ = at;
}

void TreeSums::MarkFlushed() {
  for (auto it = namespaces_.begin(); it != namespaces_.end();) {
    NamespaceUsage& use = it->second;
    use.dirty = false;
    const bool leaves = MayLeave(it->first, use);
    const bool is_gone = use.empty() && use.users == 0;
    if (leaves && !is_gone) ++unloaded_;
    it = leaves || is_gone ? namespaces_.erase(it) : std::next(it);
  }
}

}  // namespace cairn::engine
