// SPDX-License-Identifier: Apache-2.0
//
// The parts of a lease that holds content of several paths. Under the commit lock; the nodes are in
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/tree/memory/lease_table.h"
#include "engine/tree/memory/tree.h"

namespace cairn::engine {

class HeldParts {
 public:
  explicit HeldParts(const Tree& tree) : tree_(tree) {}
  // The path that ends with `last`, up to `end`, which is not 0.
  void Add(const Node& last, uint64_t end);
  bool empty() const { return positions_.empty(); }
  std::vector<LeasedPart> All() const;  // In order of the nodes' numbers.

 private:
  void AddNode(const Node& node, uint64_t position);

  const Tree& tree_;
  std::map<uint64_t, uint64_t> positions_;  // By node.
};

}  // namespace cairn::engine
