// SPDX-License-Identifier: Apache-2.0
//
// How nodes that were noted become entries of the hints.
#include <algorithm>
#include <mutex>
#include <ranges>
#include <tuple>
#include <utility>

#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"
#include "engine/find/constants.h"
#include "engine/find/indexer.h"
#include "engine/tree/memory/path.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn::engine {

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

// Without memory to note the failed nodes again they are unknown: all hints are rebuilt.
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

// Notes nodes again that failed or had no room.
Status Indexer::DrainTaken(Noted work) {
  Status first;
  while (!work.empty()) {
    const size_t count = std::min(work.size(), kIndexedTogether);
    std::vector<Work> some;
    Status status;
    if (IsFull()) status = NoRoom();
    if (status.ok()) {
      status = CatchBadAlloc([&] {
        some.resize(count);
        auto from = work.begin();
        for (Work& one : some) std::tie(one.node, one.from) = *from++;
        IndexNodes(some);
      });
    }
    for (size_t i = 0; i < count; ++i) {
      auto done = work.extract(work.begin());
      MutexLock lock(&mutex_);
      --in_work_;
      const Status& ended = status.ok() ? some[i].status : status;
      if (ended.ok()) continue;
      if (first.ok()) first = ended;
      const IndexedFrom from = done.mapped();
      const auto again = noted_.insert(std::move(done));
      if (!again.inserted) again.position->second.Lower(from);
    }
  }
  if (first.code() == StatusCode::kBusy && !deps_.write->options->read_only) {
    deps_.write->callbacks->WakeSpaceThread();
  }
  return first;
}

Status Indexer::NoRoom() {
  return Status(StatusCode::kBusy, "reuse_memory_bytes are used up until a flush");
}

// Sets the status of each, kBusy where the hints have no room for it. Short nodes are read
// together, because a read takes much longer than hashing its ids. A long node is indexed at once:
// nodes behind it can begin at its hashes.
void Indexer::IndexNodes(std::span<Work> all) {
  std::vector<Work*> together;
  together.reserve(all.size());
  uint64_t tokens = 0;
  for (Work& one : all) {
    one.status = CatchBadAlloc([&]() -> Status {
      if (IsFull()) return NoRoom();
      CAIRN_RETURN_IF_ERROR(BeginTask(&one));
      if (one.task == nullptr) return Status::Ok();
      const uint64_t missing = one.task->upto() - one.task->at();
      if (missing > kReadTogetherTokens) return IndexAlone(&one);
      one.ids.resize(missing);
      together.push_back(&one);
      tokens += missing;
      return Status::Ok();
    });
    if (tokens < kConfirmTokens) continue;
    ReadTogether(&together);
    tokens = 0;
  }
  ReadTogether(&together);
}

// Reads, hashes and clears them.
void Indexer::ReadTogether(std::vector<Work*>* works) {
  std::vector<RestoreItem> items;
  const Status read = CatchBadAlloc([&] {
    for (Work* const one : *works) items.push_back(ItemOfIds(one->node, one->task->at(), one->ids));
    deps_.reader->Restore(items, io::kNoDeadline);
  });
  for (size_t i = 0; i < works->size(); ++i) {
    Work* const one = (*works)[i];
    one->status = CatchBadAlloc([&] {
      // One node may have failed for all: read alone it gets its own status.
      if (IsFull()) return NoRoom();
      if (!read.ok() || !items[i].status.ok()) return IndexAlone(one);
      return AddIds(one->task.get(), one->ids);
    });
    one->ids = {};
  }
  works->clear();
}

// Sets no task if the node needs no entry.
Status Indexer::BeginTask(Work* work) {
  CAIRN_ASSIGN_OR_RETURN(IndexedNode facts, ReadFacts(work->node, work->from));
  work->task = std::make_unique<IndexTask>(work->node, work->from, std::move(facts));
  if (work->task->is_empty()) {
    work->task = nullptr;
  } else {
    work->task->Begin(LastKnown(work->task->facts(), work->task->begin_at_most()), store());
  }
  return Status::Ok();
}

Result<IndexedNode> Indexer::ReadFacts(uint64_t number, const IndexedFrom& from) {
  IndexedNode facts;
  const WriteDeps& write = *deps_.write;
  Committer::Lock lock(write.mutex());
  CAIRN_RETURN_IF_ERROR(
      write.access->Load({.branches = {}, .nodes = {number}, .names = {}}, &lock));
  const Tree& tree = write.tree();
  const Node* const node = tree.FindNode(number);
  facts.indexed =
      node != nullptr && node->use->policy.index != Index::kNone && !IsReserved(node->ns);
  if (!facts.indexed) return facts;
  const Node* const parent = tree.OnPath(node->parent);
  facts.model = node->model;
  facts.ns = node->ns;
  facts.start = node->lanes[kTokenLane].start;
  facts.end = node->lanes[kTokenLane].end;
  facts.has_parent = parent != nullptr;
  facts.begins_namespace = parent != nullptr && parent->ns != node->ns;
  facts.path = CollectPath(tree, HeadOfNode(*node));
  facts.spans = CollectSpans(tree, HeadOfNode(*node), 0, facts.end);
  if (node->use->policy.index == Index::kChunks) {
    facts.chunks = FindNewChunks(tree, *node, from.chunks, facts.begins_namespace);
  }
  facts.changes = changes();
  return facts;
}

// Skips damaged ids, which no search could confirm, and nodes that are gone.
Status Indexer::IndexAlone(Work* work) {
  while (work->task != nullptr) {
    const Status status = ReadAll(work->task.get());
    // The node was rewound meanwhile: index what is left of it.
    if (status.code() == StatusCode::kInvalidArgument && work->task->facts().changes != changes()) {
      CAIRN_RETURN_IF_ERROR(BeginTask(work));
      continue;
    }
    if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorruption) break;
    return status;
  }
  return Status::Ok();
}

Status Indexer::ReadAll(IndexTask* task) {
  std::vector<TokenId> ids;
  while (task->at() < task->upto()) {
    ids.resize(std::min(task->upto() - task->at(), kConfirmTokens));
    CAIRN_RETURN_IF_ERROR(ReadIds(deps_.reader, task->node(), task->at(), ids, false));
    CAIRN_RETURN_IF_ERROR(AddIds(task, ids));
  }
  return Status::Ok();
}

Status Indexer::AddIds(IndexTask* task, std::span<const TokenId> ids) {
  const std::shared_ptr<Hints> hints = this->hints();
  task->Add(ids);
  // Null: a reader was shown a manifest that has none.
  if (hints != nullptr) CAIRN_RETURN_IF_ERROR(hints->Put(task->TakeEntries()));
  if (task->at() == task->upto()) Remember(task->facts(), task->places());
  return Status::Ok();
}

// The last known hash of the path up to that position. Takes the lock for each step, because
// commits need it and paths may be long.
PathDigests::Place Indexer::LastKnown(const IndexedNode& facts, uint64_t at_most) {
  for (const PathStep& step : std::views::reverse(facts.path)) {
    if (step.begin >= at_most) continue;
    MutexLock lock(&mutex_);
    const auto place =
        digests_.Last(static_cast<uint64_t>(step.node), step.begin, std::min(step.end, at_most));
    if (place.has_value()) return *place;
  }
  return {.node = 0, .end = 0, .digest = PrefixRoot(store(), facts.model)};
}

void Indexer::Remember(const IndexedNode& facts, std::span<const PathDigests::Place> places) {
  MutexLock lock(&mutex_);
  if (facts.changes != changes()) return;
  for (const PathDigests::Place& place : places) digests_.Add(place);
}

RestoreItem ItemOfIds(uint64_t node, uint64_t begin, std::span<TokenId> ids) {
  RestoreItem item;
  item.node = NodeId{node};
  item.request.begin = begin;
  item.request.end = begin + ids.size();
  item.request.tokens = ids;
  item.counts = false;
  return item;
}

Status ReadIds(Reader* reader, uint64_t node, uint64_t begin, std::span<TokenId> ids,
               bool memory_only) {
  if (ids.empty()) return Status::Ok();
  RestoreItem item = ItemOfIds(node, begin, ids);
  reader->Restore({&item, 1}, memory_only ? 0 : io::kNoDeadline);
  if (memory_only && item.status.code() == StatusCode::kDeadlineExceeded) {
    return Status(StatusCode::kBusy, "token ids are not in memory");
  }
  return item.status;
}

}  // namespace cairn::engine
