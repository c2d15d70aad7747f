// SPDX-License-Identifier: Apache-2.0
//
// Brings into memory what an operation needs of the tree, so that it can be decided under the
// commit lock without reading. What it needs follows from its arguments: a branch with its path, a
// node with its path, whether a name is taken.
//
// The lock is given back while something is read. What was read counts only if the tree's
// generation is still the same: then nothing was dumped meanwhile, and memory has all that is
// newer.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tree/tree.h"

namespace cairn::engine {

struct TreeNeeds {
  std::vector<uint64_t> branches, nodes;
  std::vector<std::pair<std::string_view, std::string_view>> names;  // {namespace, name}
  // No node is undecided. For operations that name nodes: a replay, which may know more refs, may
  // have them dead by then.
  bool decided = false;
};

// When it returns Ok, `lock` is held, and as long as it is: what of the branches and nodes is not
// in memory does not exist, nor does a branch of such a name. kCorruption, kIoError, kOutOfMemory.
Status LoadNeeds(Tree* tree, std::unique_lock<std::mutex>* lock, const TreeNeeds& needs);

// What TreeChanges::Apply needs.
TreeNeeds NeedsOf(const Op& op);

// Then memory knows the farthest ref of the node, or that it has none; or the node is not in memory
// any more. The lock as above.
Status LoadFarthest(Tree* tree, std::unique_lock<std::mutex>* lock, uint64_t node);

// Decides about every node of tree->leftovers().undecided(), and what follows from that. The lock
// as above.
Status DecideAll(Tree* tree, std::unique_lock<std::mutex>* lock);

}  // namespace cairn::engine
