// SPDX-License-Identifier: Apache-2.0
//
// One search in the hints: for a query, in one namespace, the paths that seem to have most of it.
// The caller reports which paths the ids refute, and asks again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/find.h"
#include "engine/commit/write_deps.h"
#include "engine/find/indexer.h"
#include "engine/find/path_match.h"

namespace cairn::engine {

// The hashes of a query where its blocks end; [0] is where it begins.
std::vector<Digest> ChainsOf(const StoreId& store, const PrefixQuery& query);
// The one at any position.
Digest DigestAt(std::span<const Digest> chains, const PrefixQuery& query, uint64_t position);

class PrefixSearch {
 public:
  // All outlive this; `chains` are those of the query.
  PrefixSearch(const WriteDeps& write, Reader* reader, Indexer* indexer, Hints& hints,
               const PrefixQuery& query, std::span<const Digest> chains, std::string_view ns)
      : write_(write),
        reader_(reader),
        indexer_(indexer),
        hints_(hints),
        query_(query),
        chains_(chains),
        ns_(ns),
        ns_seed_(SeedOf(ns)) {}

  // A path, by the node that it ends with.
  struct Candidate {
    uint64_t node = 0;
    PathMatch match;
    // How far it can be restored, whatever the query's ids. Set by a search for KV.
    uint64_t reach = 0;
  };
  // The best first: of which most can be restored, then the longest, then the newest. None: no path
  // matches. The query's ids are compared behind the last whole block only, or not at all. kBusy
  // with memory_only, kIoError, kOutOfMemory; kCorruption of the hints or of the tree.
  Result<std::vector<Candidate>> Run();
  // The one that matches most of all that Run found last.
  const PathMatch& longest() const { return longest_; }
  // The path of this node has other ids at `position`.
  void Refute(uint64_t node, uint64_t position);
  // The hints themselves are damaged, as Run met.
  bool hints_damaged() const { return hints_damaged_; }
  // There was more of one hash than Run looks at.
  bool cut_short() const { return cut_short_; }

  // The node is of the query's model and of this namespace: numbers may be given again after a
  // loss, and hints then name the node of others. What is above it may be another namespace's.
  bool Suits(const Node& node) const {
    return node.model == static_cast<uint64_t>(query_.model) && node.ns == ns_;
  }

  const PrefixQuery& query() const { return query_; }
  std::span<const Digest> chains() const { return chains_; }

 private:
  // Which paths are taken: all, or those that can be restored beyond a position if the query's ids
  // go on as theirs do.
  using Beyond = std::optional<uint64_t>;
  Result<std::vector<Candidate>> At(uint64_t position, const Digest& chain, Beyond beyond = {});
  Result<const Node*> LoadNode(uint64_t number, Committer::Lock* lock);
  Result<PathMatch> Match(uint64_t node, uint64_t position);
  Status MatchAll(std::span<const HintEntry> entries, Beyond beyond, std::vector<Candidate>* found);
  uint64_t DeepestMaybe() const;
  // `found`: the paths that have it.
  Result<uint64_t> DeepestBlock(std::vector<Candidate>* found);
  void AddProbes(uint64_t has, uint64_t has_not, uint64_t probe, int steps,
                 std::vector<uint64_t>* hashes) const;
  // Without a filter many hints are read in vain: those of some steps come together.
  bool reads_ahead() const { return !hints_.filter_ready() && !query_.memory_only; }
  Status GoOn(uint64_t from, Candidate* candidate);
  Result<std::vector<Candidate>> FromBlock(uint64_t block, std::vector<Candidate> at_block);
  static void Rank(std::vector<Candidate>* found);
  Status AddWithMoreKv(uint64_t deepest, std::vector<Candidate>* found);
  Result<std::vector<Candidate>> WithMoreKv(uint64_t block, uint64_t restorable);
  Result<uint64_t> LastBlockOn(const Candidate& path, uint64_t block);

  const WriteDeps& write_;
  Reader* const reader_;
  Indexer* const indexer_;
  Hints& hints_;
  const PrefixQuery& query_;
  const std::span<const Digest> chains_;
  const std::string_view ns_;
  const uint64_t ns_seed_;
  bool hints_damaged_ = false, cut_short_ = false;
  PathMatch longest_;
  std::map<uint64_t, uint64_t> refuted_;  // Node: where its path has other ids.
};

}  // namespace cairn::engine
