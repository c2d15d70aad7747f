// SPDX-License-Identifier: Apache-2.0
#include "engine/find/prefix_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/find/constants.h"

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

// Null: it is not there. A tree with little memory forgets a node as soon as the lock is released.
Result<const Node*> PrefixSearch::LoadNode(uint64_t number, Committer::Lock* lock) {
  const Tree& tree = write_.tree();
  if (!tree.KnowsNode(number)) {
    CAIRN_RETURN_IF_ERROR(write_.access->LoadNodes({&number, 1}, query_.memory_only, lock));
  }
  const Node* const node = tree.FindNode(number);
  return node != nullptr && Suits(*node) ? node : nullptr;
}

// Nothing is matched where it is not there.
Result<PathMatch> PrefixSearch::Match(uint64_t number, uint64_t position) {
  Committer::Lock lock(write_.mutex());
  CAIRN_ASSIGN_OR_RETURN(const Node* const node, LoadNode(number, &lock));
  if (node == nullptr) return PathMatch();
  return MatchPath(write_.tree(), *node, position, query_.spans, query_.approximate);
}

// Their nodes are read together, those that are not in memory. What is gone for good is forgotten.
Status PrefixSearch::MatchAll(std::span<const HintEntry> entries, Beyond beyond,
                              std::vector<Candidate>* found) {
  TreeNeeds needs;
  for (const HintEntry& entry : entries) needs.nodes.push_back(entry.node);
  std::vector<HintEntry> gone;
  {
    Committer::Lock lock(write_.mutex());
    const Tree& tree = write_.tree();
    if (!query_.memory_only) CAIRN_RETURN_IF_ERROR(write_.access->Load(needs, &lock));
    for (const HintEntry& entry : entries) {
      const Node* const node = tree.FindNode(entry.node);
      if (node == nullptr && query_.memory_only && !tree.KnowsNode(entry.node)) {
        return Status(StatusCode::kBusy, "a node is not in memory");
      }
      if (node == nullptr || !Suits(*node)) {
        gone.push_back(entry);
        continue;
      }
      const PathMatch match =
          MatchPath(tree, *node, entry.position, query_.spans, query_.approximate);
      if (match.agrees != entry.position) continue;
      uint64_t reach = 0;
      if (beyond.has_value()) {
        reach =
            MatchPath(tree, *node, node->lanes[kTokenLane].end, query_.spans, query_.approximate)
                .restorable;
        if (reach <= *beyond) continue;
      }
      found->push_back({entry.node, match, reach});
    }
  }
  // A reader's tree may be behind the hints. Without room they stay, and are met again; and where
  // nothing may be waited for.
  if (!gone.empty() && !write_.options->read_only && !query_.memory_only) {
    static_cast<void>(indexer_->Forget(&hints_, gone));
  }
  return Status::Ok();
}

// The paths that seem to have the query up to there, newest first.
Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::At(uint64_t position,
                                                              const Digest& chain, Beyond beyond) {
  std::vector<Candidate> found;
  const uint64_t hash = KeyHash(chain, ns_seed_);
  if (!hints_.MayHave(hash)) return found;
  uint64_t before = UINT64_MAX;
  for (size_t scans = 0; before != 0; ++scans) {
    if (beyond.has_value() && scans == kKvScansMax) break;
    if (scans == kHintScansMax) {
      cut_short_ = true;
      break;
    }
    std::vector<HintEntry> entries;
    const auto scanned = hints_.Find(hash, position, before, query_.memory_only, &entries);
    hints_damaged_ = scanned.status().code() == StatusCode::kCorruption;
    CAIRN_RETURN_IF_ERROR(scanned.status());
    before = *scanned;
    std::erase_if(entries, [&](const HintEntry& entry) {
      const auto refuted = refuted_.find(entry.node);
      return refuted != refuted_.end() && refuted->second < position;
    });
    for (std::span<const HintEntry> left = entries; !left.empty();) {
      const size_t some = std::min(left.size(), kPrefixCandidates);
      CAIRN_RETURN_IF_ERROR(MatchAll(left.first(some), beyond, &found));
      if (found.size() >= kPrefixCandidates) return found;
      left = left.subspan(some);
    }
  }
  return found;
}

// By the filter, which errs to the deep end only.
uint64_t PrefixSearch::DeepestMaybe() const {
  uint64_t has = 0, has_not = chains_.size();
  while (has + 1 < has_not) {
    const uint64_t probe = (has + has_not) / 2;
    (hints_.MayHave(KeyHash(chains_[probe], ns_seed_)) ? has : has_not) = probe;
  }
  return has;
}

// Where a path has the query up to a block's end, it has it up to the ends before that, too. A
// prompt is often there as a whole, or nothing of it is.
Result<uint64_t> PrefixSearch::DeepestBlock(std::vector<Candidate>* found) {
  uint64_t probe = hints_.filter_ready() ? DeepestMaybe() : chains_.size() - 1;
  uint64_t has = 0, has_not = probe + 1;
  for (int step = 0; has + 1 < has_not; ++step, probe = (has + has_not) / 2) {
    if (step % kStepsAhead == 0 && reads_ahead()) {
      std::vector<uint64_t> hashes;
      AddProbes(has, has_not, probe, kStepsAhead, &hashes);
      hints_.ReadAhead(hashes);
    }
    CAIRN_ASSIGN_OR_RETURN(auto here, At(probe * kPrefixBlock, chains_[probe]));
    if (here.empty()) {
      has_not = probe;
    } else {
      has = probe;
      *found = std::move(here);
    }
  }
  return has * kPrefixBlock;
}

// Adds all keys that the next `steps` steps may ask for, however they turn out.
void PrefixSearch::AddProbes(uint64_t has, uint64_t has_not, uint64_t probe, int steps,
                             std::vector<uint64_t>* hashes) const {
  if (steps == 0 || has + 1 >= has_not) return;
  hashes->push_back(KeyHash(chains_[probe], ns_seed_));
  AddProbes(has, probe, (has + probe) / 2, steps - 1, hashes);
  AddProbes(probe, has_not, (probe + has_not) / 2, steps - 1, hashes);
}

// How far its ids agree behind `from`, up to the next block's end.
Status PrefixSearch::GoOn(uint64_t from, Candidate* candidate) {
  uint64_t end =
      std::min<uint64_t>(query_.tokens.size(), from - from % kPrefixBlock + kPrefixBlock);
  {
    Committer::Lock lock(write_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Node* const node, LoadNode(candidate->node, &lock));
    if (node == nullptr) return Status::Ok();
    end = std::min(end, node->lanes[kTokenLane].end);
  }
  if (end <= from) return Status::Ok();
  std::vector<TokenId> ids(end - from);
  const Status read = ReadIds(reader_, candidate->node, from, ids, query_.memory_only);
  // It ends earlier by now, is gone or damaged: Confirm will see.
  if (MayHaveMoved(read) || read.code() == StatusCode::kCorruption) return Status::Ok();
  CAIRN_RETURN_IF_ERROR(read);
  const auto differs =
      std::mismatch(ids.begin(), ids.end(), query_.tokens.begin() + static_cast<long>(from));
  const uint64_t position = from + static_cast<uint64_t>(differs.first - ids.begin());
  CAIRN_ASSIGN_OR_RETURN(candidate->match, Match(candidate->node, position));
  return Status::Ok();
}

// Each of the paths has that block, or begins behind it and is found by the edge.
Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::FromBlock(
    uint64_t block, std::vector<Candidate> at_block) {
  std::vector<Candidate> found;
  const uint64_t end = std::min<uint64_t>(query_.tokens.size(), block + kPrefixBlock - 1);
  std::vector<Digest> digests;
  for (uint64_t position = block; position <= end; ++position) {
    digests.push_back(DigestAt(chains_, query_, position));
  }
  if (reads_ahead()) {
    std::vector<uint64_t> hashes;
    for (const Digest& digest : digests) hashes.push_back(KeyHash(digest, ns_seed_));
    hints_.ReadAhead(hashes);
  }
  for (uint64_t position = block; position <= end; ++position) {
    std::vector<Candidate> here = std::move(at_block);
    at_block.clear();
    if (position != block) {
      CAIRN_ASSIGN_OR_RETURN(here, At(position, digests[position - block]));
    }
    for (Candidate& one : here) {
      if (query_.confirm) CAIRN_RETURN_IF_ERROR(GoOn(position, &one));
      if (one.match.matched != 0) found.push_back(one);
    }
  }
  return found;
}

// The last block that the node has as the query has it, as far as it can be restored. REQUIRES: it
// has this one.
Result<uint64_t> PrefixSearch::LastBlockOn(const Candidate& path, uint64_t block) {
  uint64_t has = block / kPrefixBlock;
  uint64_t has_not = std::min(path.reach / kPrefixBlock + 1, chains_.size());
  while (has + 1 < has_not) {
    const uint64_t probe = (has + has_not) / 2;
    const uint64_t hash = KeyHash(chains_[probe], ns_seed_);
    std::vector<HintEntry> entries;
    if (hints_.MayHave(hash)) {
      const Status read =
          hints_.Find(hash, probe * kPrefixBlock, path.node + 1, query_.memory_only, &entries)
              .status();
      hints_damaged_ = read.code() == StatusCode::kCorruption;
      CAIRN_RETURN_IF_ERROR(read);
    }
    const bool there = !entries.empty() && entries.front().node == path.node;
    (there ? has : has_not) = probe;
  }
  return has * kPrefixBlock;
}

// Paths that have the query up to this block and of which more can be restored than that.
Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::WithMoreKv(uint64_t block,
                                                                      uint64_t restorable) {
  std::vector<Candidate> found;
  CAIRN_ASSIGN_OR_RETURN(std::vector<Candidate> here,
                         At(block, chains_[block / kPrefixBlock], restorable));
  for (Candidate& one : here) {  // Its hints may be from what it had before.
    const auto refuted = refuted_.find(one.node);
    if (refuted != refuted_.end()) one.reach = std::min(one.reach, refuted->second);
  }
  std::stable_sort(here.begin(), here.end(),
                   [](const Candidate& a, const Candidate& b) { return a.reach > b.reach; });
  for (Candidate& one : here) {
    if (one.reach <= restorable) break;  // A better one was found.
    CAIRN_ASSIGN_OR_RETURN(const uint64_t last, LastBlockOn(one, block));
    CAIRN_ASSIGN_OR_RETURN(one.match, Match(one.node, last));
    if (query_.confirm) CAIRN_RETURN_IF_ERROR(GoOn(last, &one));
    if (one.match.restorable <= restorable) continue;
    restorable = one.match.restorable;
    found.push_back(one);
  }
  return found;
}

void PrefixSearch::Rank(std::vector<Candidate>* found) {
  std::sort(found->begin(), found->end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.match.restorable, a.match.matched, a.node) >
           std::tie(b.match.restorable, b.match.matched, b.node);
  });
}

// A path of which more can be restored has the first block behind what can be restored of the best
// so far. Branches leave it behind that, so another look begins where its last node ends.
Status PrefixSearch::AddWithMoreKv(uint64_t deepest, std::vector<Candidate>* found) {
  for (size_t round = 0; round < kKvRounds; ++round) {
    const uint64_t restorable = found->empty() ? 0 : found->front().match.restorable;
    const uint64_t block = restorable - restorable % kPrefixBlock + kPrefixBlock;
    if (block > deepest) break;
    Result<std::vector<Candidate>> more = WithMoreKv(block, restorable);
    if (more.status().code() == StatusCode::kBusy && query_.memory_only) {
      cut_short_ = true;  // What was found is true all the same.
      break;
    }
    CAIRN_RETURN_IF_ERROR(more.status());
    if (more->empty()) break;
    found->insert(found->end(), more->begin(), more->end());
    Rank(found);
  }
  return Status::Ok();
}

Result<std::vector<PrefixSearch::Candidate>> PrefixSearch::Run() {
  std::vector<Candidate> at_block;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t block, DeepestBlock(&at_block));
  longest_ = {};
  if (block == 0) return std::vector<Candidate>();
  CAIRN_ASSIGN_OR_RETURN(std::vector<Candidate> found, FromBlock(block, std::move(at_block)));
  Rank(&found);
  if (found.empty() || found.front().match.restorable < block) {
    CAIRN_RETURN_IF_ERROR(AddWithMoreKv(block, &found));
  }
  for (const Candidate& one : found) {
    if (one.match.matched > longest_.matched) longest_ = one.match;
  }
  return found;
}

}  // namespace cairn::engine
