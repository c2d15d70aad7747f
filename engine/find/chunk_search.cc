// SPDX-License-Identifier: Apache-2.0
#include "engine/find/chunk_search.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "engine/find/chunk_stretches.h"
#include "engine/find/constants.h"
#include "engine/restore/plan/plan.h"
#include "engine/tree/memory/path.h"

namespace cairn::engine {

std::vector<Fingerprint> FingerprintsOf(const PrefixQuery& query) {
  std::vector<Fingerprint> chosen;
  chosen.reserve(query.tokens.size() / 8);
  Winnower winnower(0);
  winnower.Add(query.tokens, query.spans, [&](const Fingerprint& one) { chosen.push_back(one); });
  return chosen;
}

void KeepLongest(std::vector<ChunkMatch>* matches) {
  std::sort(matches->begin(), matches->end(), [](const ChunkMatch& a, const ChunkMatch& b) {
    return std::tie(a.begin, b.end, b.node, b.source) < std::tie(b.begin, a.end, a.node, a.source);
  });
  ChunkMatch last;  // That reaches farthest.
  std::erase_if(*matches, [&](const ChunkMatch& one) {
    const bool within = last.end > one.end || (last.end == one.end && last.begin < one.begin);
    if (one.end > last.end) last = one;
    return within;
  });
  matches->erase(std::unique(matches->begin(), matches->end()), matches->end());
}

ChunkSearch::ChunkSearch(const WriteDeps& write, Reader* reader, Indexer* indexer, Hints& hints,
                         const PrefixQuery& query, std::span<const Fingerprint> chosen,
                         std::string_view ns)
    : write_(write),
      reader_(reader),
      indexer_(indexer),
      hints_(hints),
      query_(query),
      chosen_(chosen),
      ns_(ns),
      seed_(ChunkSeed(indexer->store(), static_cast<uint64_t>(query.model), SeedOf(ns))),
      looked_(chosen.size()),
      covered_(chosen.size()) {}

// The node is of the query's model and namespace: numbers may be given again after a loss.
bool ChunkSearch::Suits(const Node& node) const {
  return node.model == static_cast<uint64_t>(query_.model) && node.ns == ns_;
}

// ---------------------------------------------------------------- which fingerprints

Result<std::vector<ChunkMatch>> ChunkSearch::Run() {
  for (const uint64_t distance : kChunkDistances) {
    const std::vector<size_t> picked = Pick(distance);
    for (std::span<const size_t> left = picked; !left.empty();) {
      const auto some = left.first(std::min(left.size(), kChunksLookedUpTogether));
      CAIRN_RETURN_IF_ERROR(LookUp(some));
      left = left.subspan(some.size());
    }
  }
  KeepLongest(&matches_);
  CAIRN_RETURN_IF_ERROR(DropWhatIsGone());
  // A reader's tree may be behind the hints. Without room they stay, and are met again.
  if (!gone_.empty() && !write_.options->read_only && !query_.memory_only) {
    static_cast<void>(indexer_->Forget(&hints_, gone_));
  }
  return std::move(matches_);
}

// The windows that chose it end where the next one was chosen.
uint64_t ChunkSearch::EndOf(size_t place) const {
  return place + 1 < chosen_.size() ? chosen_[place + 1].window_end - 1 : query_.tokens.size();
}

std::vector<size_t> ChunkSearch::Pick(uint64_t distance) {
  std::vector<size_t> picked;
  uint64_t from = 0;
  for (size_t place = 0; place < chosen_.size(); ++place) {
    if (looked_[place] || covered_[place] || chosen_[place].end < from) continue;
    if (looked_up_ == kChunkScansMax) {
      cut_short_ = true;
      break;
    }
    looked_[place] = true;
    if (!hints_.MayHave(ChunkKeyHash(chosen_[place].value, seed_))) continue;
    picked.push_back(place);
    ++looked_up_;
    from = chosen_[place].end + distance;
  }
  return picked;
}

Status ChunkSearch::LookUp(std::span<const size_t> picked) {
  std::vector<size_t> places;
  std::vector<uint64_t> hashes;
  for (const size_t place : picked) {
    if (covered_[place]) continue;  // By what others of its round found.
    places.push_back(place);
    hashes.push_back(ChunkKeyHash(chosen_[place].value, seed_));
  }
  auto found = hints_.FindChunks(hashes, query_.memory_only);
  hints_damaged_ = found.status().code() == StatusCode::kCorruption;
  CAIRN_RETURN_IF_ERROR(found.status());
  std::vector<Question> questions;
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<HintEntry>& entries = (*found)[i];
    if (!entries.empty()) questions.push_back({.place = places[i], .entries = std::move(entries)});
  }
  std::stable_sort(questions.begin(), questions.end(), [](const Question& a, const Question& b) {
    return a.entries.size() < b.entries.size();
  });
  for (std::span<Question> left = questions; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kChunksAskedTogether));
    CAIRN_RETURN_IF_ERROR(Ask(some));
    left = left.subspan(some.size());
  }
  return Status::Ok();
}

Status ChunkSearch::Ask(std::span<Question> questions) {
  for (std::vector<Seed> seeds = NextSeeds(questions); !seeds.empty();
       seeds = NextSeeds(questions)) {
    CAIRN_RETURN_IF_ERROR(Compare(&seeds));
    for (const Seed& seed : seeds) {
      if (!seed.lives) continue;
      ++seed.question->living;
      AddMatch(seed);
    }
  }
  for (const Question& one : questions) {
    if (one.entries.size() == kHintScanMax && one.living < kPrefixCandidates) cut_short_ = true;
  }
  return Status::Ok();
}

// Of each question as many as may still live, the newest first. Of one diagonal only one at a time:
// its match mostly has the others.
std::vector<ChunkSearch::Seed> ChunkSearch::NextSeeds(std::span<Question> questions) {
  std::vector<Seed> seeds;
  std::set<Diagonal> diagonals;
  for (Question& one : questions) {
    if (covered_[one.place]) continue;
    for (size_t living = one.living; living < kPrefixCandidates && one.next < one.entries.size();
         ++living) {
      Seed seed{.question = &one, .entry = one.entries[one.next], .at = chosen_[one.place].end};
      const Diagonal diagonal(seed.entry.node, seed.SourceOf(0));
      if (IsMatched(seed)) {
        ++one.living;
      } else if (diagonals.insert(diagonal).second) {
        seeds.push_back(seed);
      } else {
        break;
      }
      ++one.next;
    }
  }
  return seeds;
}

bool ChunkSearch::IsMatched(const Seed& seed) const {
  const auto [first, last] = on_diagonal_.equal_range({seed.entry.node, seed.SourceOf(0)});
  return std::any_of(first, last, [&](const auto& one) {
    const ChunkMatch& match = matches_[one.second];
    return match.begin + kChunkIds <= seed.at && seed.at <= match.end;
  });
}

void ChunkSearch::AddMatch(const Seed& seed) {
  on_diagonal_.emplace(Diagonal(seed.entry.node, seed.SourceOf(0)), matches_.size());
  matches_.push_back({.begin = seed.lo,
                      .end = seed.hi,
                      .node = seed.entry.node,
                      .source = seed.SourceOf(seed.lo)});
  auto place =
      static_cast<size_t>(std::partition_point(chosen_.begin(), chosen_.end(),
                                               [&](const Fingerprint& one) {
                                                 return one.window_end < seed.lo + kChunkRun;
                                               }) -
                          chosen_.begin());
  for (; place < chosen_.size() && EndOf(place) <= seed.hi; ++place) covered_[place] = true;
}

// ---------------------------------------------------------------- comparing

// Reads more and more on both sides of what is equal, for all seeds together.
Status ChunkSearch::Compare(std::vector<Seed>* seeds) {
  for (Seed& seed : *seeds) seed.lo = seed.hi = seed.at;
  const uint64_t reach_max = std::max(kChunkReach, kConfirmTokens / (2 * seeds->size()));
  for (uint64_t reach = kChunkReach;; reach = std::min(4 * reach, reach_max)) {
    std::vector<Read> reads = NextReads(*seeds, reach);
    if (reads.empty()) return Status::Ok();
    if (compared_ >= kComparedShare * query_.tokens.size() + kConfirmTokens) {
      cut_short_ = true;
      return Status::Ok();
    }
    CAIRN_RETURN_IF_ERROR(ClipAll(&reads));
    CAIRN_RETURN_IF_ERROR(ReadAll(&reads));
    for (const Read& read : reads) Extend(read);
  }
}

// The first read of a seed is of its run and both sides of that, and later ones of one side each.
std::vector<ChunkSearch::Read> ChunkSearch::NextReads(std::span<Seed> seeds, uint64_t reach) const {
  std::vector<Read> reads;
  for (Seed& seed : seeds) {
    const uint64_t first = seed.at - std::min(seed.at, seed.entry.position);
    const uint64_t lo = std::max(first, seed.lo - std::min(seed.lo, reach));
    const uint64_t hi = std::min<uint64_t>(query_.tokens.size(), seed.hi + reach);
    const bool begins = seed.lo == seed.hi;
    if (begins && seed.left && seed.right) {
      reads.push_back({.seed = &seed, .lo = lo, .hi = hi});
      continue;
    }
    if (!seed.lives) continue;
    if (seed.left && lo < seed.lo) reads.push_back({.seed = &seed, .lo = lo, .hi = seed.lo});
    if (seed.right && hi > seed.hi) reads.push_back({.seed = &seed, .lo = seed.hi, .hi = hi});
  }
  return reads;
}

// To what has exact KV. What has none there is read no more.
Status ChunkSearch::ClipAll(std::vector<Read>* reads) {
  std::vector<uint64_t> nodes;
  for (const Read& read : *reads) nodes.push_back(read.seed->entry.node);
  Committer::Lock lock(write_.mutex());
  CAIRN_RETURN_IF_ERROR(write_.access->LoadNodes(nodes, query_.memory_only, &lock));
  std::vector<Read> clipped;
  for (Read& read : *reads) {
    if (Clip(&read, lock)) clipped.push_back(std::move(read));
  }
  *reads = std::move(clipped);
  return Status::Ok();
}

bool ChunkSearch::Clip(Read* read, const Committer::Lock&) {
  Seed& seed = *read->seed;
  const Tree& tree = write_.tree();
  const Node* const node = tree.FindNode(seed.entry.node);
  const bool first = read->lo < seed.at && seed.at <= read->hi && seed.lo == seed.hi;
  const bool is_left = read->hi == seed.lo, is_right = read->lo == seed.hi;
  if (first || is_left) seed.left = false;
  if (first || is_right) seed.right = false;
  if (node == nullptr || !Suits(*node) || node->lanes[kTokenLane].end < seed.entry.position) {
    if (gone_.size() < kSweepBatch) gone_.push_back(seed.entry);  // The next search meets the rest.
    return false;
  }
  // What has to be within the stretch: the run of the seed, or the last or first of the read.
  const uint64_t need_lo = first ? seed.at - kChunkIds : is_left ? read->hi - 1 : read->lo;
  const uint64_t need_hi = first ? seed.at : is_left ? read->hi : read->lo + 1;
  const uint64_t lo = seed.SourceOf(read->lo), hi = seed.SourceOf(read->hi);
  for (const ChunkStretch& one : ExactStretches(tree, *node, lo, hi)) {
    if (one.begin > seed.SourceOf(need_lo) || one.end < seed.SourceOf(need_hi)) continue;
    // Where it is clipped the run ends; else it may go on.
    if (first || is_left) seed.left = one.begin == lo;
    if (first || is_right) seed.right = one.end == hi;
    read->lo += one.begin - lo;
    read->hi -= hi - one.end;
    read->run.spans = CollectSpans(tree, HeadOfNode(*node), one.begin, one.end);
    return true;
  }
  return false;
}

// What moved or is damaged meanwhile ends the run there.
Status ChunkSearch::ReadAll(std::vector<Read>* reads) {
  std::vector<PathRun*> runs;
  for (Read& read : *reads) {
    read.run.node = read.seed->entry.node;
    read.run.begin = read.seed->SourceOf(read.lo);
    read.run.end = read.seed->SourceOf(read.hi);
    compared_ += read.hi - read.lo;
    runs.push_back(&read.run);
  }
  return ReadRuns(reader_, runs, query_.memory_only);
}

bool ChunkSearch::IsEqual(const Read& read, uint64_t position) const {
  return IsSame(read.run, read.seed->SourceOf(position), query_, position);
}

void ChunkSearch::Extend(const Read& read) const {
  Seed& seed = *read.seed;
  const bool first = seed.lo == seed.hi;
  if (read.run.ids.empty()) {
    seed.left = seed.right = false;
    return;
  }
  uint64_t lo = seed.lo, hi = seed.hi;
  if (first || read.hi == seed.lo) {
    while (lo > read.lo && IsEqual(read, lo - 1)) --lo;
    if (lo != read.lo) seed.left = false;
  }
  if (first || read.lo == seed.hi) {
    while (hi < read.hi && IsEqual(read, hi)) ++hi;
    if (hi != read.hi) seed.right = false;
  }
  if (first) {
    seed.lives = seed.at - lo >= kChunkIds;
    if (!seed.lives) seed.left = seed.right = false;
  }
  seed.lo = lo;
  seed.hi = hi;
}

// ---------------------------------------------------------------- at the end

// Drops matches whose KV went while others were compared, some at a time: commits need the lock.
Status ChunkSearch::DropWhatIsGone() {
  std::vector<ChunkMatch> kept;
  for (std::span<const ChunkMatch> left = matches_; !left.empty();) {
    const auto some = left.first(std::min(left.size(), kMatchesCheckedAtOnce));
    left = left.subspan(some.size());
    TreeNeeds needs;
    for (const ChunkMatch& match : some) needs.nodes.push_back(match.node);
    Committer::Lock lock(write_.mutex());
    if (!query_.memory_only) CAIRN_RETURN_IF_ERROR(write_.access->Load(needs, &lock));
    for (const ChunkMatch& match : some) {
      if (!IsGone(match, lock)) kept.push_back(match);
    }
  }
  matches_ = std::move(kept);
  return Status::Ok();
}

bool ChunkSearch::IsGone(const ChunkMatch& match, const Committer::Lock&) const {
  const Node* const node = write_.tree().FindNode(match.node);
  if (node == nullptr || !Suits(*node)) return true;
  const ChunkStretch whole{match.source, match.source + match.end - match.begin};
  const auto exact = ExactStretches(write_.tree(), *node, whole.begin, whole.end);
  return exact.size() != 1 || exact.front() != whole;
}

}  // namespace cairn::engine
