// SPDX-License-Identifier: Apache-2.0
//
// A peer of prefix search: a radix tree over token ids in memory, as SGLang keeps one (RadixCache
// of its srt/mem_cache with pages of one token: a node holds a run of ids, its children are found
// by the first id of theirs, and a node is split where paths part). It is written anew for the
// benchmark, in C++, without the lists of KV slots that SGLang's nodes have beside the ids, and
// without eviction: what it takes in time and memory is less than what SGLang takes.
//
// All is in memory, so it is empty after a restart and grows with every id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cairn/branch.h"

namespace cairn::bench {

class RadixTree {
 public:
  struct Node {
    Node* parent = nullptr;
    uint64_t begin = 0;  // So many ids are above.
    uint64_t owner = 0;  // Of the path for which it was made.
    std::vector<TokenId> ids{};
    std::unordered_map<TokenId, std::unique_ptr<Node>> children{};  // By their first id.
    uint64_t end() const { return begin + ids.size(); }
  };
  struct Match {
    uint64_t length = 0;
    uint64_t owner = 0;  // Of a path that begins so; 0 where the length is.
  };

  Node* root() { return &root_; }
  // The path of `ids` behind the first `at` ids of the one that ends with node `path`. The result:
  // where it ends, which stays its end. From the root that is what SGLang does with whole prompts;
  // from elsewhere the same tree comes of it, without comparing what is known to be equal.
  Node* Insert(Node* path, uint64_t at, std::span<const TokenId> ids, uint64_t owner);
  // SGLang splits a node that matches in part, for what it will insert; this one only looks.
  Match LongestMatch(std::span<const TokenId> ids) const;

  uint64_t nodes() const { return nodes_; }  // Without the root.
  uint64_t ids() const { return ids_; }

 private:
  Node* Add(Node* parent, uint64_t owner, std::span<const TokenId> ids);
  Node* Split(Node* node, size_t keep);

  Node root_;
  uint64_t nodes_ = 0, ids_ = 0;
};

}  // namespace cairn::bench
