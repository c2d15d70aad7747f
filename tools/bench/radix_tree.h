// SPDX-License-Identifier: Apache-2.0
//
// A peer of prefix search: a radix tree over token ids in memory, like SGLang's (RadixCache of its
// srt/mem_cache with pages of one token: a node holds a run of ids, its children are found by their
// first id, and a node is split where paths part). It is rewritten for the benchmark, in C++,
// without the lists of KV slots that SGLang's nodes have beside the ids, and without eviction: so
// it takes less time and memory than SGLang's.
//
// Everything is in memory, so it is empty after a restart and grows with every id.
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
    uint64_t owner = 0;  // The path for which it was made.
    std::vector<TokenId> ids{};
    std::unordered_map<TokenId, std::unique_ptr<Node>> children{};  // By their first id.
    uint64_t end() const { return begin + ids.size(); }
  };
  struct Match {
    uint64_t length = 0;
    uint64_t owner = 0;  // A path that begins so; 0 where the length is.
  };

  Node* root() { return &root_; }
  // Inserts the path of `ids` after the first `at` ids of the path that ends with node `path`.
  // Returns the node where it ends, which stays its end. From the root this is what SGLang does
  // with whole prompts; from elsewhere it makes the same tree without comparing parts that are
  // known to be equal.
  Node* Insert(Node* path, uint64_t at, std::span<const TokenId> ids, uint64_t owner);
  // SGLang splits a node that matches in part, because it will insert; this only looks.
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
