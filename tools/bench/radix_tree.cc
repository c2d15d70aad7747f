// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/radix_tree.h"

#include <algorithm>
#include <utility>

namespace cairn::bench {
namespace {

size_t Common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  const auto [end, other] =
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin());
  return static_cast<size_t>(end - a.begin());
}

}  // namespace

RadixTree::Node* RadixTree::Add(Node* parent, uint64_t owner, std::span<const TokenId> ids) {
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->begin = parent->end();
  node->owner = owner;
  node->ids.assign(ids.begin(), ids.end());
  ++nodes_;
  return (parent->children[ids[0]] = std::move(node)).get();
}

// The first `keep` ids become a node above it, which is the result.
RadixTree::Node* RadixTree::Split(Node* node, size_t keep) {
  Node* const parent = node->parent;
  std::unique_ptr<Node> lower = std::move(parent->children[node->ids[0]]);
  Node* const upper = Add(parent, node->owner, std::span(node->ids).first(keep));
  lower->ids.erase(lower->ids.begin(), lower->ids.begin() + static_cast<ptrdiff_t>(keep));
  lower->ids.shrink_to_fit();
  lower->parent = upper;
  lower->begin += keep;
  upper->children[lower->ids[0]] = std::move(lower);
  return upper;
}

RadixTree::Node* RadixTree::Insert(Node* path, uint64_t at, std::span<const TokenId> ids,
                                   uint64_t owner) {
  while (path->parent != nullptr && path->begin >= at) path = path->parent;
  if (at < path->end()) path = Split(path, at - path->begin);
  while (!ids.empty()) {
    const auto child = path->children.find(ids[0]);
    if (child == path->children.end()) {
      ids_ += ids.size();
      return Add(path, owner, ids);
    }
    Node* const next = child->second.get();
    const size_t common = Common(next->ids, ids);
    path = common < next->ids.size() ? Split(next, common) : next;
    ids = ids.subspan(common);
  }
  return path;
}

RadixTree::Match RadixTree::LongestMatch(std::span<const TokenId> ids) const {
  Match match;
  const Node* node = &root_;
  while (match.length < ids.size()) {
    const auto child = node->children.find(ids[match.length]);
    if (child == node->children.end()) break;
    node = child->second.get();
    match.owner = node->owner;
    match.length += Common(node->ids, ids.subspan(match.length));
    if (match.length < node->end()) break;
  }
  return match;
}

}  // namespace cairn::bench
