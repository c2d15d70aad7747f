// SPDX-License-Identifier: Apache-2.0
//
// Where the namespaces of a query have runs of its ids with exact KV, at any position: what a plan
// that reuses them is made of.
//
// A match was true at one moment during the call and holds nothing: a caller that uses it puts its
// node on lease, and confirms.
//
// Thread-safe. No lock may be held around the calls.
#pragma once

#include <span>
#include <vector>

#include "cairn/find.h"
#include "engine/find/chunk_search.h"
#include "engine/find/prefix_finder.h"

namespace cairn::engine {

struct ChunkMatches {
  // By where they begin in the query. None lies within a longer one; of equal ones each is here.
  std::vector<ChunkMatch> matches{};
  // Everything that was appended before the call was looked at.
  bool complete = false;
  uint64_t looked_up = 0;  // Fingerprints, in the index.
  uint64_t compared = 0;   // Ids.
};

class ChunkFinder {
 public:
  // It outlives this.
  explicit ChunkFinder(const PrefixFinder& prefixes)
      : prefixes_(prefixes), deps_(prefixes.deps()) {}
  ChunkFinder(const ChunkFinder&) = delete;
  ChunkFinder& operator=(const ChunkFinder&) = delete;

  // Looks at ids, spans, model, namespaces and memory_only of the query. The errors of FindPrefix;
  // kInvalidState where none of the namespaces indexes chunks.
  Result<ChunkMatches> Find(const PrefixQuery& query);

 private:
  Result<std::vector<std::string_view>> NamespacesOf(const PrefixQuery& query) const;
  Status AddFrom(const PrefixQuery& query, std::span<const Fingerprint> chosen, std::string_view ns,
                 ChunkMatches* found);

  const PrefixFinder& prefixes_;
  const PrefixFinder::Deps& deps_;
};

}  // namespace cairn::engine
