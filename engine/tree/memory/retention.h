// SPDX-License-Identifier: Apache-2.0
//
// The retention rules of layer groups (cairn/model.h) in terms of positions. A group that need not
// keep all positions may have *gaps*: stretches of its lane that never had KV (Place::gap).
#pragma once

#include <cstdint>
#include <span>

#include "cairn/model.h"

namespace cairn::engine {

// An append may leave out positions before its KV.
inline bool MayHaveGaps(const LayerGroup& group) { return group.retention.kind != Retention::kAll; }
// Its rows are states, of which a request needs one, instead of positions.
inline bool KeepsStates(const LayerGroup& group) {
  return group.retention.kind == Retention::kCheckpoint ||
         group.retention.kind == Retention::kPerRequest;
}
// Bytes of one position of the groups that keep positions.
uint64_t PositionKvBytes(const ModelSpec& model);

// Positions [0, sinks_end) and [begin, end); sinks_end <= begin <= end.
struct NeededPositions {
  uint64_t sinks_end = 0, begin = 0, end = 0;
  bool operator==(const NeededPositions&) const = default;
};
// Positions of the group that a branch needs to continue after `length` tokens.
NeededPositions Needed(const LayerGroup& group, uint64_t length);

// The largest length <= at_most for which all needed positions lie below the group's kv_length;
// gaps are not considered.
uint64_t LengthWithin(const LayerGroup& group, uint64_t kv_length, uint64_t at_most);
// The same for all groups that are not optional. `lengths`: of the lanes of a branch, tokens first.
uint64_t CommonLength(const ModelSpec& model, std::span<const uint64_t> lengths, uint64_t at_most);

}  // namespace cairn::engine
