// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/forest.h"

#include <algorithm>
#include <set>

#include "base/core/check.h"

namespace cairn::cli {

namespace {

void AddPath(Forest* forest, const SeenBranch& info, const std::vector<PathStep>& path) {
  if (path.empty()) {
    forest->empty.push_back(info);
    return;
  }
  for (const PathStep& step : path) {
    ForestNode& node = forest->nodes[static_cast<uint64_t>(step.node)];
    node.id = static_cast<uint64_t>(step.node);
    node.parent = static_cast<uint64_t>(step.parent);
    node.owner = static_cast<uint64_t>(step.owner);
    node.begin = step.begin;
    node.end = std::max(node.end, step.end);
  }
  forest->nodes[static_cast<uint64_t>(path.back().node)].heads.push_back(info);
}

void LinkNodes(Forest* forest) {
  for (auto& [id, node] : forest->nodes) {
    const auto parent = forest->nodes.find(node.parent);
    if (parent == forest->nodes.end()) {
      forest->roots.push_back(id);
    } else {
      parent->second.children.push_back(id);
    }
  }
  for (auto& [id, node] : forest->nodes) {
    std::sort(node.children.begin(), node.children.end(), [&](uint64_t a, uint64_t b) {
      return std::pair(forest->nodes[a].begin, a) < std::pair(forest->nodes[b].begin, b);
    });
    std::sort(node.heads.begin(), node.heads.end(), [](const SeenBranch& a, const SeenBranch& b) {
      return std::pair(a.length, a.id) < std::pair(b.length, b.id);
    });
  }
}

Result<std::vector<BranchInfo>> ListAll(const Store& store, const std::optional<std::string>& ns) {
  std::vector<BranchInfo> branches;
  std::vector<std::string> names;
  if (ns.has_value()) {
    names.push_back(*ns);
  } else {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<NamespaceInfo> all, store.Namespaces());
    for (const NamespaceInfo& one : all) names.push_back(one.name);
  }
  for (const std::string& name : names) {
    std::string cursor;
    do {
      CAIRN_ASSIGN_OR_RETURN(BranchPage page, store.ListBranches(name, "", 1000, cursor));
      std::move(page.branches.begin(), page.branches.end(), std::back_inserter(branches));
      cursor = page.cursor;
    } while (!cursor.empty());
  }
  return branches;
}

}  // namespace

uint64_t Forest::branches() const {
  uint64_t count = empty.size();
  for (const auto& [id, node] : nodes) count += node.heads.size();
  return count;
}

uint64_t Forest::stored_tokens() const {
  uint64_t tokens = 0;
  for (const auto& [id, node] : nodes) tokens += node.end - node.begin;
  return tokens;
}

uint64_t Forest::reached_tokens() const {
  uint64_t tokens = 0;
  for (const auto& [id, node] : nodes) {
    for (const SeenBranch& head : node.heads) tokens += head.length;
  }
  return tokens;
}

Result<std::vector<Forest>> LoadForests(const Store& store, const ForestFilter& filter) {
  std::map<uint64_t, Forest> by_model;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches, ListAll(store, filter.ns));
  for (const BranchInfo& info : branches) {
    CAIRN_ASSIGN_OR_RETURN(const Branch branch, store.GetBranch(info.id));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PathStep> path, branch.Path());
    const uint64_t root = path.empty() ? 0 : static_cast<uint64_t>(path.front().node);
    if (filter.root.has_value() && root != *filter.root) continue;
    CAIRN_ASSIGN_OR_RETURN(const SeenBranch seen, SeeBranch(branch, info));
    AddPath(&by_model[static_cast<uint64_t>(info.model)], seen, path);
  }
  std::vector<Forest> forests;
  for (auto& [id, forest] : by_model) {
    CAIRN_ASSIGN_OR_RETURN(forest.model, store.GetModel(ModelId{id}));
    LinkNodes(&forest);
    forests.push_back(std::move(forest));
  }
  return forests;
}

std::vector<uint64_t> Preorder(const Forest& forest) {
  std::vector<uint64_t> order;
  std::vector<uint64_t> open(forest.roots.rbegin(), forest.roots.rend());
  while (!open.empty()) {
    const ForestNode& node = forest.nodes.at(open.back());
    open.pop_back();
    order.push_back(node.id);
    open.insert(open.end(), node.children.rbegin(), node.children.rend());
  }
  return order;
}

std::string Heading(const Forest& forest) {
  return Printable(forest.model.spec.identity.name) + " (model " +
         std::to_string(static_cast<uint64_t>(forest.model.id)) +
         "): " + Plural(forest.branches(), "branch") + " on " +
         Plural(forest.nodes.size(), "node") + ", " + Plural(forest.stored_tokens(), "token") +
         " stored for " + std::to_string(forest.reached_tokens());
}

Json ToJson(const Forest& forest) {
  std::map<uint64_t, Json> made;
  const std::vector<uint64_t> order = Preorder(forest);
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const ForestNode& node = forest.nodes.at(*id);
    Json heads = Json::array();
    for (const SeenBranch& head : node.heads) heads.push_back(ToJson(head));
    Json children = Json::array();
    for (const uint64_t child : node.children) {
      children.push_back(std::move(made.at(child)));
      made.erase(child);
    }
    made[*id] = {{"node", node.id},     {"begin", node.begin}, {"end", node.end},
                 {"owner", node.owner}, {"branches", heads},   {"children", children}};
  }
  Json trees = Json::array();
  for (const uint64_t root : forest.roots) trees.push_back(std::move(made.at(root)));
  Json empty = Json::array();
  for (const SeenBranch& info : forest.empty) empty.push_back(ToJson(info));
  return {{"model", ToJson(forest.model)},
          {"branches", forest.branches()},
          {"nodes", forest.nodes.size()},
          {"stored_tokens", forest.stored_tokens()},
          {"reached_tokens", forest.reached_tokens()},
          {"trees", trees},
          {"empty", empty}};
}

}  // namespace cairn::cli
