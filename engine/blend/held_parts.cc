// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/held_parts.h"

#include <algorithm>

#include "engine/find/path_match.h"

namespace cairn::engine {

// The node that `end` lies on must be held, since others may not need it; and those behind it that
// have KV of positions before their own: they may have no token at all.
void HeldParts::Add(const Node& last, uint64_t end) {
  const Node* const holder = NodeOf(tree_, &last, end);
  AddNode(*holder, end);
  for (const Node* node = &last; node != holder; node = tree_.OnPath(node->parent)) {
    const bool has_kv =
        std::any_of(node->lanes.begin() + kTokenLane + 1, node->lanes.end(),
                    [&](const Lane& kv) { return kv.start < kv.end && kv.start < end; });
    if (has_kv) AddNode(*node, node->lanes[kTokenLane].start + 1);
  }
}

void HeldParts::AddNode(const Node& node, uint64_t position) {
  Held& held = held_[node.id];
  held.position = std::max(held.position, position);
  fresh_.insert(node.id);
}

std::vector<LeasedPart> HeldParts::TakeNew(bool with_bytes) {
  std::vector<LeasedPart> parts;
  for (const uint64_t node : fresh_) {
    Held& held = held_.at(node);
    if (held.position == held.taken) continue;
    const uint64_t bytes = BytesBelow(tree_, *tree_.FindNode(node), held.position);
    parts.push_back({node, held.position, with_bytes ? bytes - held.taken_bytes : 0});
    held.taken = held.position;
    held.taken_bytes = bytes;
  }
  fresh_.clear();
  return parts;
}

}  // namespace cairn::engine
