// SPDX-License-Identifier: Apache-2.0
#include "engine/find/prefix_finder.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "base/core/mutation.h"
#include "engine/find/constants.h"
#include "engine/find/path_hold.h"
#include "engine/find/prefix_search.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"
#include "engine/tree/ops/decisions.h"

namespace cairn::engine {

namespace {

Status Bad(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

Status CheckSpans(const PrefixQuery& query) {
  uint64_t end = 0;
  for (const ContentSpan& span : query.spans) {
    if (span.begin < end || span.begin >= span.end || span.end > query.tokens.size()) {
      return Bad("query.spans: [" + std::to_string(span.begin) + ", " + std::to_string(span.end) +
                 ") must lie in order within the " + std::to_string(query.tokens.size()) +
                 " tokens");
    }
    end = span.end;
  }
  return Status::Ok();
}

// The nodes that a match needs held. Where its KV ends on a node above, that one is held up to
// there as well: nothing else may need it.
std::vector<LeasedPart> PartsOf(const PathMatch& match) {
  std::vector<LeasedPart> parts = {{match.node, match.matched}};
  if (match.kv_node != 0 && match.kv_node != match.node) {
    parts.push_back({match.kv_node, match.restorable});
  }
  return parts;
}

}  // namespace

// ---------------------------------------------------------------- finding

Result<std::shared_ptr<Hints>> PrefixFinder::HintsNow() const {
  if (deps_.indexer == nullptr) {
    return Status(StatusCode::kInvalidState, "find: nothing is indexed (options.index is kNone)");
  }
  auto hints = deps_.indexer->hints();
  if (hints != nullptr) return hints;
  if (!deps_.write->options->read_only) {
    return Status(StatusCode::kInvalidState, "find: the index of prefixes could not be opened");
  }
  if (deps_.indexer->unindexed()) {
    return Status(StatusCode::kInvalidState, "find: the writer of the store indexes nothing");
  }
  return hints;
}

Status PrefixFinder::CheckQuery(const PrefixQuery& query) const {
  CAIRN_RETURN_IF_ERROR(HintsNow().status());
  return CheckFields(query);
}

Status PrefixFinder::CheckFields(const PrefixQuery& query) const {
  const WriteDeps& write = *deps_.write;
  if (query.tokens.size() > INT32_MAX) {
    return Bad("query.tokens: " + std::to_string(query.tokens.size()) + " are more than 2^31 - 1");
  }
  if (query.also.size() >= kMaxQueryNamespaces) {
    return Bad("query.also: " + std::to_string(query.also.size()) + " namespaces; at most " +
               std::to_string(kMaxQueryNamespaces - 1));
  }
  CAIRN_RETURN_IF_ERROR(CheckNotReserved(query.ns));
  for (const std::string_view ns : query.also) CAIRN_RETURN_IF_ERROR(CheckNotReserved(ns));
  CAIRN_RETURN_IF_ERROR(CheckSpans(query));
  const std::lock_guard lock(write.mutex());
  if (write.tree().FindModel(static_cast<uint64_t>(query.model)) == nullptr) {
    return Status(StatusCode::kNotFound,
                  "query.model: " + std::to_string(static_cast<uint64_t>(query.model)) +
                      " is not registered");
  }
  return Status::Ok();
}

Result<PrefixHit> PrefixFinder::Find(const PrefixQuery& query) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(CheckQuery(query));
  finds_.fetch_add(1, std::memory_order_relaxed);
  CAIRN_ASSIGN_OR_RETURN(const PrefixHit best, Search(query));
  if (best.found()) hits_.fetch_add(1, std::memory_order_relaxed);
  return best;
}

// A join beside a search gives content to a node that may not be indexed when the hints are asked,
// and the node that they name is gone: then it searches again.
Result<PrefixHit> PrefixFinder::Search(const PrefixQuery& query) {
  for (size_t round = 1;; ++round) {
    const uint64_t moves = deps_.indexer->moves();
    bool complete = false;
    if (query.memory_only) {
      complete = deps_.indexer->complete();
    } else {
      deps_.coalesced->FlushAll();
      complete = deps_.indexer->CatchUp(kCatchUpNodes);
    }
    CAIRN_ASSIGN_OR_RETURN(PrefixHit best, FindInAll(query, &complete));
    const bool moved = deps_.indexer->moves() != moves;
    best.complete = complete && !moved;
    const bool whole = best.longest.matched == query.tokens.size();
    if (!moved || whole || round == kConfirmRounds) return best;
    static_cast<void>(deps_.leases->Release(best.lease));
  }
}

Result<PrefixHit> PrefixFinder::FindInAll(const PrefixQuery& query, bool* complete) {
  const std::vector<Digest> chains = ChainsOf(deps_.indexer->store(), query);
  std::vector<std::string_view> namespaces(query.also.begin(), query.also.end());
  namespaces.insert(namespaces.begin(), query.ns);
  PrefixHit best;
  for (size_t i = 0; i < namespaces.size(); ++i) {
    if (std::find(namespaces.begin(), namespaces.begin() + static_cast<long>(i), namespaces[i]) !=
        namespaces.begin() + static_cast<long>(i)) {
      continue;
    }
    const auto hints = HintsNow();  // A reader may have been shown a manifest without.
    if (!hints.ok()) {
      static_cast<void>(deps_.leases->Release(best.lease));
      return hints.status();
    }
    if (*hints == nullptr) {
      *complete = false;
      continue;
    }
    PrefixSearch search(*deps_.write, deps_.reader, deps_.indexer, **hints, query, chains,
                        namespaces[i]);
    auto found = FindIn(&search, complete);
    // A reader may know files that are gone: what it is shown next names others.
    const bool moved =
        deps_.write->options->read_only && (found.status().code() == StatusCode::kNotFound ||
                                            found.status().code() == StatusCode::kStale);
    if (moved || (!found.ok() && search.hints_damaged())) {
      deps_.indexer->Discard(**hints, found.status());
      *complete = false;
      continue;
    }
    if (!found.ok()) {
      static_cast<void>(deps_.leases->Release(best.lease));
      return found.status();
    }
    PrefixHit hit = *found;
    const PrefixHit::Longest longest =
        hit.longest.matched > best.longest.matched ? hit.longest : best.longest;
    const bool better =
        std::tie(hit.restorable, hit.matched) > std::tie(best.restorable, best.matched);
    if (better) std::swap(hit, best);
    best.longest = longest;
    static_cast<void>(deps_.leases->Release(hit.lease));
  }
  return best;
}

// The best of one namespace. What its ids refute, and what changes meanwhile, is looked for again.
Result<PrefixHit> PrefixFinder::FindIn(PrefixSearch* search, bool* complete) {
  PrefixHit hit;
  for (size_t round = 0; round < kConfirmRounds; ++round) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<PrefixSearch::Candidate> found, search->Run());
    if (search->cut_short()) *complete = false;
    if (found.empty()) return hit;
    PathHold hold(*deps_.write);
    PathMatch match = found.front().match;
    if (!search->query().confirm) {
      Fill(*search, match, &hit);
      return hit;
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t differs,
                           Confirm(*search, found.front().node, &match, &hold));
    if (differs < match.matched) {
      search->Refute(found.front().node, differs);
    } else if (match.matched == found.front().match.matched &&
               Finish(*search, match, &hold, &hit)) {
      return hit;
    }
  }
  *complete = false;  // Others change it faster than it is read.
  return hit;
}

// Compares the ids of what is then held. The result: the first that differs, or all of the match.
Result<uint64_t> PrefixFinder::Confirm(const PrefixSearch& search, uint64_t path, PathMatch* match,
                                       PathHold* hold) {
  const PrefixQuery& query = search.query();
  const WriteDeps& write = *deps_.write;
  {
    Committer::Lock lock(write.mutex());
    if (!query.memory_only) {
      CAIRN_RETURN_IF_ERROR(
          write.access->Load({.branches = {}, .nodes = {path}, .names = {}}, &lock));
    }
    const Node* const node = write.tree().FindNode(path);
    *match = node == nullptr || !search.Suits(*node)
                 ? PathMatch()
                 : MatchPath(write.tree(), *node, match->matched, query.spans, query.approximate);
    if (match->matched == 0) return 0;
    hold->Begin(PartsOf(*match));
  }
  std::vector<TokenId> ids;
  for (uint64_t begin = 0; begin < match->matched; begin += ids.size()) {
    ids.resize(std::min(match->matched - begin, kConfirmTokens));
    const Status read = ReadIds(deps_.reader, match->node, begin, ids, query.memory_only);
    if (read.code() == StatusCode::kCorruption) return begin;  // Nobody could use it.
    if (MayHaveMoved(read)) {
      match->matched = 0;
      return 0;
    }
    CAIRN_RETURN_IF_ERROR(read);
    const auto want = query.tokens.begin() + static_cast<long>(begin);
    const auto differs = std::mismatch(ids.begin(), ids.end(), want).first;
    if (differs != ids.end()) return begin + static_cast<uint64_t>(differs - ids.begin());
  }
  return match->matched;
}

void PrefixFinder::Fill(const PrefixSearch& search, const PathMatch& match, PrefixHit* hit) {
  const Digest digest = DigestAt(search.chains(), search.query(), match.matched);
  hit->node = NodeId{match.node};
  hit->matched = match.matched;
  hit->restorable = match.restorable;
  hit->exact = match.exact;
  const PathMatch& longest = search.longest().matched > match.matched ? search.longest() : match;
  hit->longest = {NodeId{longest.node}, longest.matched};
  hit->seen.digest[0] = KeyHash(digest, match.ns_seed);
  hit->seen.digest[1] = digest.high;
}

// Under the commit lock. 0: none was asked for, or granted.
LeaseId PrefixFinder::LeaseOf(const PathMatch& match, uint64_t now_ns, uint64_t lease_ns) {
  if (lease_ns == 0 || !CAIRN_KEPT(kLeaseOfHit)) return {};
  const Tree& tree = deps_.write->tree();
  std::vector<LeasedPart> parts = PartsOf(match);
  for (LeasedPart& part : parts) {
    part.bytes = BytesBelow(tree, *tree.FindNode(part.node), part.position);
  }
  return deps_.leases->Grant(parts, LeaseTable::EndsWith::kAnyPart, now_ns, lease_ns);
}

// The confirmed path is still valid here, since it was held. False: it was dropped meanwhile, or
// the tree is another one.
bool PrefixFinder::Finish(const PrefixSearch& search, const PathMatch& match, PathHold* hold,
                          PrefixHit* hit) {
  const WriteDeps& write = *deps_.write;
  const uint64_t now_ns = write.lifecycle->NowNs();
  const std::lock_guard lock(write.mutex());
  const Tree& tree = write.tree();
  const bool there = tree.FindNode(match.node) != nullptr &&
                     (match.kv_node == 0 || tree.FindNode(match.kv_node) != nullptr);
  if (!there || !hold->Covers(tree.generation())) return false;
  Fill(search, match, hit);
  hit->confirmed = true;
  hit->seen.opening = deps_.leases->opening();
  hit->seen.generation = tree.generation();
  hit->seen.changes = deps_.indexer->changes();
  hit->lease = LeaseOf(match, now_ns, search.query().lease_ns);
  hold->End();
  return true;
}

// ---------------------------------------------------------------- using a hit

// From here on the hit is true, as long as `hold` lives.
Status PrefixFinder::HoldHit(const PrefixHit& hit, PathHold* hold) {
  if (!hit.found()) return Bad("hit: nothing was found");
  if (deps_.indexer == nullptr) {
    return Status(StatusCode::kInvalidState, "hit: nothing is indexed here");
  }
  const WriteDeps& write = *deps_.write;
  const auto number = static_cast<uint64_t>(hit.node);
  const uint64_t now_ns = write.lifecycle->NowNs();
  std::vector<ContentSpan> spans;
  uint64_t model = 0, ns_seed = 0;
  {
    Committer::Lock lock(write.mutex());
    CAIRN_RETURN_IF_ERROR(
        write.access->Load({.branches = {}, .nodes = {number}, .names = {}}, &lock));
    Tree& tree = write.tree();
    const Node* const node = tree.FindNode(number);
    if (node == nullptr) {
      return Status(StatusCode::kNotFound,
                    "hit: node " + std::to_string(number) + " does not exist any more");
    }
    if (hit.matched <= node->lanes[kTokenLane].start || hit.matched > node->lanes[kTokenLane].end) {
      return Status(StatusCode::kConflict, "hit: node " + std::to_string(number) +
                                               " does not reach to position " +
                                               std::to_string(hit.matched) + " any more");
    }
    tree.leases().Expire(now_ns);
    const bool of_now = hit.seen.opening == deps_.leases->opening();
    const bool same = of_now && hit.seen.generation == tree.generation() &&
                      hit.seen.changes == deps_.indexer->changes();
    const bool leased = of_now && deps_.leases->Holds(hit.lease, number, hit.matched);
    const LeasedPart part{number, hit.matched};
    hold->Begin({&part, 1});
    if ((hit.confirmed && (same || leased)) || !CAIRN_KEPT(kStaleHit)) return Status::Ok();
    spans = CollectSpans(tree, HeadOfNode(*node), 0, hit.matched);
    model = node->model;
    ns_seed = SeedOf(node->ns);
  }
  return ConfirmDigest(hit, model, ns_seed, spans);
}

Status PrefixFinder::ConfirmDigest(const PrefixHit& hit, uint64_t model, uint64_t ns_seed,
                                   std::span<const ContentSpan> spans) {
  PrefixHasher hasher(PrefixRoot(deps_.indexer->store(), model), 0, spans);
  std::vector<TokenId> ids;
  while (hasher.end() < hit.matched) {
    ids.resize(std::min(hit.matched - hasher.end(), kConfirmTokens));
    CAIRN_RETURN_IF_ERROR(
        ReadIds(deps_.reader, static_cast<uint64_t>(hit.node), hasher.end(), ids, false));
    hasher.Add(ids, [](uint64_t, const Digest&) {});
  }
  const Digest digest = hasher.At();
  if (KeyHash(digest, ns_seed) == hit.seen.digest[0] && digest.high == hit.seen.digest[1]) {
    return Status::Ok();
  }
  return Status(StatusCode::kConflict, "hit: node " +
                                           std::to_string(static_cast<uint64_t>(hit.node)) +
                                           " has other tokens by now; find again");
}

Result<BranchId> PrefixFinder::Fork(const PrefixHit& hit, uint64_t position,
                                    const BranchOptions& options) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckWritable(options.durability));
  if (position > hit.matched) {
    return Bad("fork at position " + std::to_string(position) + " of a hit of " +
               std::to_string(hit.matched) + " tokens");
  }
  PathHold hold(*deps_.write);
  CAIRN_RETURN_IF_ERROR(HoldHit(hit, &hold));
  return deps_.changes->ForkNode(hit.node, position, options);
}

Result<RestoreResult> PrefixFinder::Restore(const PrefixHit& hit, const RestoreRequest& request,
                                            LayerProgress* progress) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  LayerWords layers(*deps_.write->world.scheduler, progress);
  for (size_t round = 0; round < kConfirmRounds; ++round) {
    PathHold hold(*deps_.write);
    CAIRN_RETURN_IF_ERROR(HoldHit(hit, &hold));
    RestoreItem item;
    item.node = hit.node;
    item.request = request;
    CAIRN_ASSIGN_OR_RETURN(const Range range,
                           RangeOf(request.begin, request.end, hit.matched, "restore of a hit"));
    item.request.end = range.end;
    item.layers = &layers;
    bool other_tree = false;
    item.may_plan = [&](const Tree& tree) {
      other_tree = !hold.Covers(tree.generation());
      return other_tree ? Status(StatusCode::kStale, "hit: the tree has changed") : Status::Ok();
    };
    Status status = deps_.reads->RestoreMany({&item, 1}, request.timeout_ns);
    if (status.ok()) status = item.status;
    if (other_tree) continue;
    layers.End(status.ok());
    if (!status.ok()) return status;
    return std::move(item.result);
  }
  return Status(StatusCode::kStale, "hit: the tree changes faster than it is read");
}

}  // namespace cairn::engine
