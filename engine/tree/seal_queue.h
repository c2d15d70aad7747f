// SPDX-License-Identifier: Apache-2.0
//
// Nodes that got so much KV since they were sealed that they are to be sealed again. Part of a
// Tree: the commit lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/tree/node.h"

namespace cairn::engine {

class Residency;

class SealQueue {
 public:
  // Nodes with KV that got so many tokens or deltas since they were sealed are due; 0: none is for
  // that reason.
  void SetLimits(uint64_t tokens, uint64_t deltas) {
    tokens_ = tokens;
    deltas_ = deltas;
  }
  void Reserve(size_t more);
  // One delta more, with so many tokens. Cannot fail. REQUIRES: Reserve made room.
  void Note(Node* node, uint64_t tokens, const ModelSpec& model);
  // Those that are due; they count from zero again.
  std::vector<uint64_t> Take(Residency* memory);
  uint64_t bytes() const { return bytes_; }  // Of the due ones' KV, about.

 private:
  uint64_t tokens_ = 0, deltas_ = 0;
  std::vector<uint64_t> due_;
  uint64_t bytes_ = 0;
};

}  // namespace cairn::engine
