// SPDX-License-Identifier: Apache-2.0
//
// How nodes that were noted become entries of the hints.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/constants.h"
#include "engine/reuse/constants.h"
#include "engine/reuse/indexer.h"
#include "engine/tree/path.h"
#include "engine/tree/reserved_names.h"

namespace cairn::engine {

struct Indexer::Facts {
  bool indexed = false;  // It is there, and its namespace is indexed.
  uint64_t model = 0;
  std::string ns;
  uint64_t start = 0, end = 0;  // Its own positions.
  bool has_parent = false;
  bool begins_namespace = false;   // What is above it is another namespace's.
  std::vector<ContentSpan> spans;  // Of its whole path.
  uint64_t changes = 0;
};

bool Indexer::CatchUp(size_t nodes_max) {
  if (hints() == nullptr) return false;
  bool all = behind() == 0;
  if (!all) {
    const io::Turn::Holder turn(&turn_);
    all = Drain(nodes_max, &all).ok() && all;
  }
  return all && !rebuilding_ && !lost_;
}

void Indexer::CatchUpAll(const std::function<bool()>& go_on) {
  for (size_t left = behind(); left != 0 && hints() != nullptr && go_on();) {
    const io::Turn::Holder turn(&turn_);
    bool all = false;
    if (!Drain(kCatchUpNodes, &all).ok() || all) return;
    left -= std::min(left, kCatchUpNodes);
  }
}

// The newest first: they are asked for.
Indexer::Noted Indexer::TakeNoted(size_t nodes_max, bool* all) {
  Noted taken;
  MutexLock lock(&mutex_);
  *all = noted_.size() <= nodes_max;
  if (*all) {
    taken.swap(noted_);
  } else {
    while (taken.size() < nodes_max) taken.insert(noted_.extract(std::prev(noted_.end())));
  }
  in_work_ = taken.size();
  return taken;
}

// Who has no memory to note again what failed does not know what that was.
Status Indexer::Drain(size_t nodes_max, bool* all) {
  try {
    return DrainTaken(TakeNoted(nodes_max, all));
  } catch (const std::bad_alloc&) {
    lost_ = true;
    MutexLock lock(&mutex_);
    in_work_ = 0;
    return OutOfMemory();
  }
}

// What fails, or has no room, is noted again.
Status Indexer::DrainTaken(Noted work) {
  Status first;
  while (!work.empty()) {
    const auto [node, from] = *work.begin();
    Status status;
    if (IsFull()) {
      if (first.ok() && !means_.write->options->read_only) means_.write->host->Kick();
      status = Status(StatusCode::kBusy, "reuse_memory_bytes are used up until a flush");
    }
    if (status.ok()) status = Guarded([&, n = node, f = from] { return IndexNode(n, f); });
    auto done = work.extract(work.begin());
    MutexLock lock(&mutex_);
    --in_work_;
    if (status.ok()) continue;
    if (first.ok()) first = status;
    const auto again = noted_.insert(std::move(done));
    if (!again.inserted) again.position->second = std::min(again.position->second, from);
  }
  return first;
}

Result<Indexer::Facts> Indexer::Look(uint64_t number) {
  Facts facts;
  const WriteMeans& write = *means_.write;
  Committer::Lock lock(write.mutex());
  CAIRN_RETURN_IF_ERROR(
      write.access->Load({.branches = {}, .nodes = {number}, .names = {}}, &lock));
  const Tree& tree = write.tree();
  const Node* const node = tree.FindNode(number);
  facts.indexed =
      node != nullptr && node->use->policy.index == Index::kPrefix && !IsReserved(node->ns);
  if (!facts.indexed) return facts;
  const Node* const parent = tree.OnPath(node->parent);
  facts.model = node->model;
  facts.ns = node->ns;
  facts.start = node->lanes[kTokenLane].start;
  facts.end = node->lanes[kTokenLane].end;
  facts.has_parent = parent != nullptr;
  facts.begins_namespace = parent != nullptr && parent->ns != node->ns;
  facts.spans = CollectSpans(tree, HeadOfNode(*node), 0, facts.end);
  facts.changes = changes();
  return facts;
}

// What is damaged nobody could confirm, and what is gone nobody could find.
Status Indexer::IndexNode(uint64_t node, uint64_t from) {
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const Facts facts, Look(node));
    if (!facts.indexed) return Status::Ok();
    const Status status = HashNode(node, from, facts);
    // It was rewound meanwhile: what is left of it is still to be indexed.
    if (status.code() == StatusCode::kInvalidArgument && facts.changes != changes()) continue;
    if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorruption) {
      return Status::Ok();
    }
    return status;
  }
}

Indexer::Chain Indexer::ChainOf(uint64_t node, const Facts& facts, uint64_t at_most) {
  MutexLock lock(&mutex_);
  const auto chain = chains_.find(node);
  if (chain != chains_.end() && chain->second.end <= at_most) return chain->second;
  return {PrefixRoot(store(), facts.model), 0};
}

void Indexer::Remember(uint64_t node, const Facts& facts, const Chain& chain) {
  MutexLock lock(&mutex_);
  if (facts.changes != changes()) return;
  if (chains_.size() >= kRememberedChains) chains_.clear();
  chains_.insert_or_assign(node, chain);
}

// Entries of the positions behind `from` that the node is found by: ends of blocks on it, and one
// behind where it leaves its parent. The first node of a namespace is found by those above it, too.
Status Indexer::HashNode(uint64_t node, uint64_t from, const Facts& facts) {
  const bool all = from <= facts.start;
  const uint64_t below = facts.begins_namespace && all ? 0 : std::max(from, facts.start);
  const uint64_t last_block = facts.end - facts.end % kPrefixBlock;
  const uint64_t edge = facts.start + 1;
  const bool has_edge = facts.has_parent && all && edge > kPrefixBlock && edge <= facts.end &&
                        edge % kPrefixBlock != 0;
  const uint64_t upto = std::max(last_block > below ? last_block : 0, has_edge ? edge : 0);
  if (upto == 0) return Status::Ok();
  const Chain begin = ChainOf(node, facts, std::min(below, has_edge ? facts.start : below));
  const std::shared_ptr<Hints> hints = this->hints();
  if (hints == nullptr) return Status::Ok();  // A reader was shown a checkpoint that has none.
  PrefixHasher hasher(begin.digest, begin.end, facts.spans);
  Chain last = begin;
  std::vector<PrefixEntry> entries;
  const auto put = [&, seed = SeedOf(facts.ns)](uint64_t end, const Digest& digest) {
    entries.push_back({KeyHash(digest, seed), node, end});
  };
  const auto on_block = [&](uint64_t end, const Digest& digest) {
    last = {digest, end};
    if (end > below) put(end, digest);
  };
  std::vector<TokenId> ids;
  while (hasher.end() < upto) {
    const uint64_t chunk_end = std::min(upto, hasher.end() + kConfirmTokens);
    const uint64_t stop = has_edge && hasher.end() < edge ? std::min(edge, chunk_end) : chunk_end;
    ids.resize(stop - hasher.end());
    CAIRN_RETURN_IF_ERROR(ReadIds(means_.reader, node, hasher.end(), ids, false));
    hasher.Add(ids, on_block);
    if (has_edge && stop == edge) put(edge, hasher.At());
    CAIRN_RETURN_IF_ERROR(hints->Put(entries));
    entries.clear();
  }
  if (last.end > begin.end) Remember(node, facts, last);
  return Status::Ok();
}

Status ReadIds(Reader* reader, uint64_t node, uint64_t begin, std::span<TokenId> ids,
               bool memory_only) {
  if (ids.empty()) return Status::Ok();
  RestoreItem item;
  item.node = NodeId{node};
  item.request.begin = begin;
  item.request.end = begin + ids.size();
  item.request.tokens = ids;
  item.counts = false;
  reader->Restore({&item, 1}, memory_only ? 0 : io::kNoDeadline);
  if (memory_only && item.status.code() == StatusCode::kDeadlineExceeded) {
    return Status(StatusCode::kBusy, "token ids are not in memory");
  }
  return item.status;
}

}  // namespace cairn::engine
