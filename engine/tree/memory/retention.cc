// SPDX-License-Identifier: Apache-2.0
#include "engine/tree/memory/retention.h"

#include <algorithm>

#include "base/core/check.h"

namespace cairn::engine {

uint64_t PositionKvBytes(const ModelSpec& model) {
  uint64_t bytes = 0;
  for (const LayerGroup& group : model.groups) {
    if (!KeepsStates(group)) bytes += group.token_bytes();
  }
  return bytes;
}

NeededPositions Needed(const LayerGroup& group, uint64_t length) {
  if (length == 0) return {};
  const RetentionRule& rule = group.retention;
  switch (rule.kind) {
    case Retention::kAll: break;
    case Retention::kWindow: {
      const uint64_t begin = length - std::min<uint64_t>(length, rule.window);
      return {std::min<uint64_t>(rule.sinks, begin), begin, length};
    }
    case Retention::kChunkLocal: return {0, length - length % rule.chunk, length};
    case Retention::kCheckpoint: return {0, length - 1, length};
    case Retention::kPerRequest: return {0, 0, 1};
  }
  return {0, 0, length};
}

uint64_t LengthWithin(const LayerGroup& group, uint64_t kv_length, uint64_t at_most) {
  if (at_most <= kv_length) return at_most;
  switch (group.retention.kind) {
    case Retention::kAll:
    case Retention::kWindow:
    case Retention::kCheckpoint: break;
    // At the beginning of a chunk nothing is needed.
    case Retention::kChunkLocal:
      return std::max(kv_length, at_most - at_most % group.retention.chunk);
    case Retention::kPerRequest: return kv_length == 0 ? 0 : at_most;
  }
  return kv_length;
}

uint64_t CommonLength(const ModelSpec& model, std::span<const uint64_t> lengths, uint64_t at_most) {
  CAIRN_CHECK(lengths.size() == 1 + model.groups.size());
  // The length that suits one group may be too long for another.
  for (uint64_t before = UINT64_MAX; before != at_most;) {
    before = at_most;
    for (size_t i = 0; i < model.groups.size(); ++i) {
      if (model.groups[i].optional) continue;
      at_most = LengthWithin(model.groups[i], lengths[1 + i], at_most);
    }
  }
  return at_most;
}

}  // namespace cairn::engine
