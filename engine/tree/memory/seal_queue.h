// SPDX-License-Identifier: Apache-2.0
//
// Nodes that got enough new KV since they were last sealed to be sealed again. Part of a Tree: the
// commit lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/tree/memory/node.h"

namespace cairn::engine {

class Residency;

class SealQueue {
 public:
  // Nodes with KV are due after this many tokens or deltas since they were sealed; 0: never for
  // that reason. Deltas from `large_bytes` of KV on do not count: a restore reads them one by one
  // at no cost.
  void SetLimits(uint64_t tokens, uint64_t deltas, uint64_t large_bytes) {
    tokens_ = tokens;
    deltas_ = deltas;
    large_bytes_ = large_bytes;
  }
  void Reserve(size_t more);
  // Counts one delta more, of `tokens` tokens. Cannot fail. REQUIRES: Reserve made room.
  void Add(Node* node, uint64_t tokens, const ModelSpec& model);
  // Takes the nodes that are due; their counts restart from zero.
  std::vector<uint64_t> Take(Residency* memory);
  uint64_t bytes() const { return bytes_; }  // The KV of the due ones, about.

 private:
  uint64_t tokens_ = 0, deltas_ = 0, large_bytes_ = UINT64_MAX;
  std::vector<uint64_t> due_;
  uint64_t bytes_ = 0;
};

}  // namespace cairn::engine
