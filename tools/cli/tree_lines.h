// SPDX-License-Identifier: Apache-2.0
//
// A forest as lines, which all pictures of it draw: a line is a branch from where it leaves another
// one to its end. It goes over one node or several, or over none: a branch with nothing of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/cli/forest.h"

namespace cairn::cli {

struct TreeLine {
  const SeenBranch* head = nullptr;  // In the forest.
  uint64_t begin = 0;                // Position where it leaves the line above; 0 for roots.
  std::vector<uint64_t> nodes;       // From there to its end.
  // Lines that leave this one: the rightmost first. Drawn below it in this order, no stroke down
  // to one crosses another line.
  std::vector<size_t> leaving;
};

struct TreeLines {
  std::vector<TreeLine> lines;
  std::vector<size_t> roots;
  // Each line followed by those that leave it; a walk without recursion, as chains of forks of
  // forks are deep.
  std::vector<size_t> Preorder() const;
};
TreeLines MakeLines(const Forest& forest);

}  // namespace cairn::cli
