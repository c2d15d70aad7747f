// SPDX-License-Identifier: Apache-2.0
//
// One node to be indexed: which ids of its path must be read, and the index entries that they give.
// Reads nothing itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/branch_types.h"
#include "engine/find/chunk_stretches.h"
#include "engine/find/chunk_task.h"
#include "engine/find/hint_records.h"
#include "engine/find/path_digests.h"
#include "engine/find/prefix_hash.h"

namespace cairn::engine {

// The positions of a node behind these are to be indexed. UINT64_MAX: none.
struct IndexedFrom {
  uint64_t prefixes = 0, chunks = 0;
  void Lower(const IndexedFrom& other) {
    prefixes = std::min(prefixes, other.prefixes);
    chunks = std::min(chunks, other.chunks);
  }
};

// The node as the tree has it at one moment.
struct IndexedNode {
  bool indexed = false;  // It exists, and its namespace is indexed.
  uint64_t model = 0;
  std::string ns;
  uint64_t start = 0, end = 0;  // Its own positions.
  bool has_parent = false;
  bool begins_namespace = false;   // The nodes above it are of another namespace.
  std::vector<PathStep> path;      // From the root to it.
  std::vector<ContentSpan> spans;  // All spans of that path.
  NewChunks chunks{};              // Where its namespace has chunks.
  uint64_t changes = 0;            // Indexer::changes.
};

// Makes the entries that searches find the node by, of positions behind `from`: one at each block
// end on the node, and one just behind the place where it leaves its parent. The first node of a
// namespace also gets entries for the block ends above it. And those of its chunks.
class IndexTask {
 public:
  // Nothing is read or hashed yet. Not thread-safe.
  IndexTask(uint64_t node, const IndexedFrom& from, IndexedNode facts);
  IndexTask(const IndexTask&) = delete;
  IndexTask& operator=(const IndexTask&) = delete;

  uint64_t node() const { return node_; }
  const IndexedNode& facts() const { return facts_; }
  // The node gets no entry.
  bool is_empty() const { return !has_prefixes() && facts_.chunks.stretches.empty(); }
  // A known hash of the path can be used up to this position.
  uint64_t begin_at_most() const;
  // Begins behind `known`. REQUIRES: called once, before the first Add; the task is not empty.
  void Begin(const PathDigests::Place& known, const StoreId& store);
  // The ids of [at, upto) are missing.
  uint64_t at() const { return at_; }
  uint64_t upto() const { return std::max(upto_, chunks_->upto()); }
  // Adds the next missing ids.
  void Add(std::span<const TokenId> ids);

  // The entries of all ids that were added since the last call.
  std::vector<HintEntry> TakeEntries();
  // Hashes of the path that are worth keeping (PathDigests).
  std::span<const PathDigests::Place> places() const { return places_; }

 private:
  bool has_prefixes() const { return upto_ != 0; }
  void AddPrefixes(std::span<const TokenId> ids);
  void AddUpTo(std::span<const TokenId> ids);
  void Put(uint64_t end, const Digest& digest);
  void EndBlock(uint64_t end, const Digest& digest);

  const uint64_t node_;
  const IndexedNode facts_;
  const uint64_t ns_seed_;
  uint64_t below_ = 0;  // Entries are of positions behind this one.
  uint64_t edge_ = 0;   // The position of the entry behind the parent; 0: there is none.
  uint64_t upto_ = 0;   // The same: no prefix gets an entry.
  uint64_t at_ = 0;
  std::optional<PrefixHasher> hasher_;
  std::optional<ChunkTask> chunks_;
  size_t step_ = 0;  // The step of the path that the last block ended on.
  std::vector<HintEntry> entries_;
  std::vector<PathDigests::Place> places_;
};

}  // namespace cairn::engine
