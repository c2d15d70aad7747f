// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/prefix_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/reuse/constants.h"

namespace cairn::engine {

std::vector<Digest> ChainsOf(const StoreId& store, const PrefixQuery& query) {
  std::vector<Digest> chains;
  chains.reserve(query.tokens.size() / kPrefixBlock + 1);
  chains.push_back(PrefixRoot(store, static_cast<uint64_t>(query.model)));
  for (uint64_t end = kPrefixBlock; end <= query.tokens.size(); end += kPrefixBlock) {
    const uint64_t begin = end - kPrefixBlock;
    chains.push_back(
        ExtendPrefix(chains.back(), begin, query.tokens.subspan(begin, kPrefixBlock), query.spans));
  }
  return chains;
}

Digest DigestAt(std::span<const Digest> chains, const PrefixQuery& query, uint64_t position) {
  const uint64_t begin = position - position % kPrefixBlock;
  const Digest& chain = chains[begin / kPrefixBlock];
  if (begin == position) return chain;
  return ExtendPrefix(chain, begin, query.tokens.subspan(begin, position - begin), query.spans);
}

void PrefixSearch::Refute(uint64_t node, uint64_t position) {
  const auto [entry, is_new] = refuted_.try_emplace(node, position);
  entry->second = std::min(entry->second, position);
}

// Nothing is matched where it is not there.
Result<PathMatch> PrefixSearch::Match(uint64_t number, uint64_t position) {
  Committer::Lock lock(write_.mutex());
  const Tree& tree = write_.tree();
  if (!tree.KnowsNode(number)) {
    if (query_.memory_only) return Status(StatusCode::kBusy, "a node is not in memory");
    CAIRN_RETURN_IF_ERROR(
        write_.access->Load({.branches = {}, .nodes = {number}, .names = {}}, &lock));
  }
  const Node* const node = tree.FindNode(number);
  if (node == nullptr) return PathMatch();
  return MatchPath(tree, *node, position, query_.spans, query_.approximate);
}

// The paths that seem to have the query up to there, newest first.
Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::At(uint64_t position,
                                                              const Digest& chain) {
  std::vector<Candidate> found;
  const uint64_t hash = KeyHash(chain, ns_seed_);
  if (!hints_.MayHave(hash)) return found;
  std::vector<PrefixEntry> entries;
  const Status scanned = hints_.Find(hash, position, query_.memory_only, &entries);
  hints_damaged_ = scanned.code() == StatusCode::kCorruption;
  CAIRN_RETURN_IF_ERROR(scanned);
  for (const PrefixEntry& entry : entries) {
    if (found.size() == kPrefixCandidates) break;
    const auto refuted = refuted_.find(entry.node);
    if (refuted != refuted_.end() && refuted->second < position) continue;
    CAIRN_ASSIGN_OR_RETURN(const PathMatch match, Match(entry.node, position));
    if (match.matched == position) found.push_back({entry.node, match});
  }
  return found;
}

// Where a path has the query up to a block's end, it has it up to the ends before that, too.
Result<uint64_t> PrefixSearch::DeepestBlock() {
  uint64_t has = 0, has_not = chains_.size();
  // A prompt is often there as a whole, or nothing of it is.
  for (uint64_t probe = chains_.size() - 1; has + 1 < has_not; probe = (has + has_not) / 2) {
    CAIRN_ASSIGN_OR_RETURN(const auto found, At(probe * kPrefixBlock, chains_[probe]));
    (found.empty() ? has_not : has) = probe;
  }
  return has * kPrefixBlock;
}

// How far its ids agree behind `from`, up to the next block's end.
Status PrefixSearch::GoOn(uint64_t from, Candidate* candidate) {
  uint64_t end =
      std::min<uint64_t>(query_.tokens.size(), from - from % kPrefixBlock + kPrefixBlock);
  {
    const std::lock_guard lock(write_.mutex());
    const Node* const node = write_.tree().FindNode(candidate->node);
    if (node == nullptr) return Status::Ok();
    end = std::min(end, node->lanes[kTokenLane].end);
  }
  if (end <= from) return Status::Ok();
  std::vector<TokenId> ids(end - from);
  const Status read = ReadIds(reader_, candidate->node, from, ids, query_.memory_only);
  // It ends earlier by now, is gone or damaged: whoever confirms it will see.
  if (MayHaveMoved(read) || read.code() == StatusCode::kCorruption) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(read);
  const auto differs =
      std::mismatch(ids.begin(), ids.end(), query_.tokens.begin() + static_cast<long>(from));
  const uint64_t position = from + static_cast<uint64_t>(differs.first - ids.begin());
  CAIRN_ASSIGN_OR_RETURN(candidate->match, Match(candidate->node, position));
  return Status::Ok();
}

Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::Run() {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t block, DeepestBlock());
  std::vector<Candidate> found;
  if (block == 0) return found;
  // Each of the paths has that block, or begins behind it and is found by the edge.
  const uint64_t end = std::min<uint64_t>(query_.tokens.size(), block + kPrefixBlock - 1);
  for (uint64_t position = block; position <= end; ++position) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<Candidate> here,
                           At(position, DigestAt(chains_, query_, position)));
    for (Candidate& one : here) {
      if (query_.confirm) CAIRN_RETURN_IF_ERROR(GoOn(position, &one));
      if (one.match.matched != 0) found.push_back(one);
    }
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.match.restorable, a.match.matched, a.node) >
           std::tie(b.match.restorable, b.match.matched, b.node);
  });
  return found;
}

}  // namespace cairn::engine
