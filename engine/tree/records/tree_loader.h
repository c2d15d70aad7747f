// SPDX-License-Identifier: Apache-2.0
//
// Loads the parts of the tree that an operation needs, so that it can be decided under the commit
// lock without reading. They follow from its arguments: a branch with its path, a node with its
// path, whether a name is taken. With each comes its namespace.
//
// The lock is released during reads. A read result counts only if the tree's generation
// has not changed: then nothing was flushed meanwhile, and memory has everything that is
// newer.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tree/memory/tree.h"

namespace cairn::engine {

struct TreeNeeds {
  std::vector<uint64_t> branches, nodes;
  // {namespace, name}; an empty name: the namespace alone.
  std::vector<std::pair<std::string_view, std::string_view>> names;
  // No node is undecided. For operations that name nodes: a replay may know more refs, and find
  // them dead by then.
  bool decided = false;
};

// On Ok `lock` is held. Until it is released, branches and nodes of `needs` that are not in memory
// do not exist, nor does a branch of such a name; and namespaces are in memory if they exist.
// kCorruption, kIoError, kOutOfMemory.
Status LoadNeeds(Tree* tree, std::unique_lock<std::mutex>* lock, const TreeNeeds& needs);

// The needs of TreeChanges::Apply.
TreeNeeds NeedsOf(const Op& op);

// Afterwards memory knows the farthest ref of the node, or that it has none; or the node is not in
// memory any more. The lock as above.
Status LoadFarthest(Tree* tree, std::unique_lock<std::mutex>* lock, uint64_t node);

// Decides about every node of tree->leftovers().undecided(), and about those that this adds. The
// lock as above.
Status DecideAll(Tree* tree, std::unique_lock<std::mutex>* lock);

}  // namespace cairn::engine
