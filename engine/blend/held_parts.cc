// SPDX-License-Identifier: Apache-2.0
#include "engine/blend/held_parts.h"

#include <algorithm>

#include "engine/find/path_match.h"

namespace cairn::engine {

// The node that `end` lies on must be held, since others may not need it; and the last one, which
// may have KV of positions before its own.
void HeldParts::Add(const Node& last, uint64_t end) {
  AddNode(*NodeOf(tree_, &last, end), end);
  const Lane& ids = last.lanes[kTokenLane];
  if (ids.start < ids.end) AddNode(last, std::max(end, ids.start + 1));
}

void HeldParts::AddNode(const Node& node, uint64_t position) {
  uint64_t& held = positions_[node.id];
  held = std::max(held, position);
}

std::vector<LeasedPart> HeldParts::All() const {
  std::vector<LeasedPart> all;
  for (const auto& [node, position] : positions_) {
    all.push_back({node, position, BytesBelow(tree_, *tree_.FindNode(node), position)});
  }
  return all;
}

}  // namespace cairn::engine
