// SPDX-License-Identifier: Apache-2.0
//
// The conversation trees of a store, put together from the paths of its branches. A node that no
// branch reaches is not there, and a node is as long as the longest path on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/store.h"
#include "tools/cli/output.h"
#include "tools/cli/seen_branch.h"

namespace cairn::cli {

struct ForestNode {
  uint64_t id = 0, parent = 0, owner = 0;
  uint64_t begin = 0;  // Where it leaves its parent.
  uint64_t end = 0;
  std::vector<SeenBranch> heads;   // Branches that end on it, by length and id.
  std::vector<uint64_t> children;  // By begin and id.
};

// All trees of one model.
struct Forest {
  ModelInfo model;
  std::map<uint64_t, ForestNode> nodes;
  std::vector<uint64_t> roots;
  std::vector<SeenBranch> empty;  // Branches without tokens.

  uint64_t branches() const;
  uint64_t stored_tokens() const;   // Each node once.
  uint64_t reached_tokens() const;  // Without sharing between branches.
};

// `ns`: only branches of this namespace. `root`: only the tree with this node in it.
struct ForestFilter {
  std::optional<std::string> ns;
  std::optional<uint64_t> root;
};
Result<std::vector<Forest>> LoadForests(const Store& store, const ForestFilter& filter);

// Nodes, each before its children. Walks with a list, not with the stack: deep trees are chains of
// forks of forks.
std::vector<uint64_t> Preorder(const Forest& forest);

Json ToJson(const Forest& forest);
// "llama (model 1): 6 branches on 5 nodes, 143 tokens stored for 268"
std::string Heading(const Forest& forest);

struct DrawOptions {
  size_t width = 100;  // Columns to fit into, where the tree allows.
  bool ascii = false;
};
// One line a branch: the path to its end from where it leaves another branch, to scale.
std::string Draw(const Forest& forest, const DrawOptions& options);

}  // namespace cairn::cli
