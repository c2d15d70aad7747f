// SPDX-License-Identifier: Apache-2.0
//
// The parts of a lease that holds content of several paths, some of which share nodes. Its methods
// are called under the commit lock, with the nodes in memory; between them they may leave it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "engine/tree/memory/lease_table.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

class HeldParts {
 public:
  explicit HeldParts(const Tree& tree) : tree_(tree) {}
  // The path that ends with `last`, up to `end`, which is not 0.
  void Add(const Node& last, uint64_t end);
  // What was added since it was called before, in order of the nodes' numbers: nodes that are new,
  // or reach further. Without bytes for a lease of one call, which counts for nothing.
  std::vector<LeasedPart> TakeNew(bool with_bytes);

 private:
  struct Held {
    uint64_t position = 0;
    uint64_t taken = 0, taken_bytes = 0;  // The position that was taken, and its bytes.
  };
  void AddNode(const Node& node, uint64_t position);

  const Tree& tree_;
  std::map<uint64_t, Held> held_;  // By node.
  std::set<uint64_t> fresh_;       // Nodes that were added since.
};

}  // namespace cairn::engine
