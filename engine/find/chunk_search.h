// SPDX-License-Identifier: Apache-2.0
//
// One search for chunks in the hints: which runs of a query's ids one namespace has with exact KV,
// wherever they stand there.
//
//   some fingerprints, at distances                hints; one look for all of a round
//   their nodes, of the rarest fingerprint first   ids compared, and on both sides for as long as
//                                                  ids, spans and KV allow
//   the same where nothing was found, more densely; then every fingerprint that is left
//
// A fingerprint is left out once a match has all windows that chose it. So of each run of kChunkRun
// ids every position is in some match, if a fingerprint of each of its windows has no more than
// kPrefixCandidates living entries.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/find.h"
#include "engine/commit/write_deps.h"
#include "engine/find/chunk_hash.h"
#include "engine/find/indexer.h"
#include "engine/find/path_runs.h"

namespace cairn::engine {

// Ids [begin, end) of a query are those of the path that ends with the node, from `source` on. They
// were compared, and had exact KV, at one moment during the search.
struct ChunkMatch {
  uint64_t begin = 0, end = 0;
  uint64_t node = 0;
  uint64_t source = 0;
  bool operator==(const ChunkMatch&) const = default;
};

// Those of all ids of a query, in order.
std::vector<Fingerprint> FingerprintsOf(const PrefixQuery& query);

// Drops matches that lie within a longer one, and sorts the rest by where they begin.
void KeepLongest(std::vector<ChunkMatch>* matches);

class ChunkSearch {
 public:
  // All outlive this; `chosen` are those of the query.
  ChunkSearch(const WriteDeps& write, Reader* reader, Indexer* indexer, Hints& hints,
              const PrefixQuery& query, std::span<const Fingerprint> chosen, std::string_view ns);

  // kBusy with memory_only, kIoError, kOutOfMemory; kCorruption of the hints or of the tree.
  Result<std::vector<ChunkMatch>> Run();
  // The hints themselves are damaged, as Run met.
  bool hints_damaged() const { return hints_damaged_; }
  // There was more of one fingerprint, more fingerprints, or more to compare, than Run looks at.
  bool cut_short() const { return cut_short_; }
  uint64_t looked_up() const { return looked_up_; }
  uint64_t compared() const { return compared_; }

 private:
  struct Question {
    size_t place = 0;  // In chosen_.
    std::vector<HintEntry> entries{};
    size_t next = 0, living = 0;
  };
  // An entry that is compared: ids [lo, hi) are found equal.
  struct Seed {
    Question* question = nullptr;
    HintEntry entry{};
    uint64_t at = 0;  // Where its run ends in the query.
    uint64_t lo = 0, hi = 0;
    bool lives = false, left = true, right = true;  // Not ended on these sides.
    // Position of the path, of one of the query.
    uint64_t SourceOf(uint64_t position) const { return position + entry.position - at; }
  };
  // Ids [lo, hi) of the query to be compared with those of the seed's path.
  struct Read {
    Seed* seed = nullptr;
    uint64_t lo = 0, hi = 0;
    PathRun run{};
  };
  using Diagonal = std::pair<uint64_t, uint64_t>;  // Node; its position less that of the query.

  std::vector<size_t> Pick(uint64_t distance);
  uint64_t BeginOf(size_t place) const { return chosen_[place].window_end - kChunkRun; }
  uint64_t EndOf(size_t place) const;
  Status LookUp(std::span<const size_t> picked);
  Status Ask(std::span<Question> questions);
  std::vector<Seed> NextSeeds(std::span<Question> questions);
  bool IsMatched(const Seed& seed) const;
  Status Compare(std::vector<Seed>* seeds);
  std::vector<Read> NextReads(std::span<Seed> seeds, uint64_t reach) const;
  Status ClipAll(std::vector<Read>* reads);
  bool Clip(Read* read, const Committer::Lock& lock);
  Status ReadAll(std::vector<Read>* reads);
  void Extend(const Read& read) const;
  bool IsEqual(const Read& read, uint64_t position) const;
  void AddMatch(const Seed& seed);
  Status DropWhatIsGone();
  bool IsGone(const ChunkMatch& match, const Committer::Lock& lock) const;
  bool Suits(const Node& node) const;

  const WriteDeps& write_;
  Reader* const reader_;
  Indexer* const indexer_;
  Hints& hints_;
  const PrefixQuery& query_;
  const std::span<const Fingerprint> chosen_;
  const std::string_view ns_;
  const uint64_t seed_;
  std::vector<bool> looked_, covered_;  // By place in chosen_.
  std::vector<ChunkMatch> matches_;
  std::multimap<Diagonal, size_t> on_diagonal_;  // Matches.
  std::vector<HintEntry> gone_;                  // Some of what is.
  bool hints_damaged_ = false, cut_short_ = false;
  uint64_t looked_up_ = 0;
  uint64_t compared_ = 0;  // Ids.
};

}  // namespace cairn::engine
