// SPDX-License-Identifier: Apache-2.0
//
// Work of the background on the hints: tree flushes, rebuilds, sweeps.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/find/constants.h"
#include "engine/find/indexer.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

// ---------------------------------------------------------------- tree flushes

bool Indexer::IsFull() const {
  const std::shared_ptr<Hints> hints = this->hints();
  return hints != nullptr && hints->IsFull();
}

Status Indexer::Flush() {
  const std::shared_ptr<Hints> hints = this->hints();
  const Status flushed = CatchBadAlloc([&] { return hints->Flush(); });
  {
    // The tables have nothing of what was logged since; nobody names them meanwhile.
    const std::lock_guard lock(deps_.write->mutex());
    log_needed_ = deps_.write->log->last_reserved_sequence();
  }
  flushed_.fetch_add(1);
  deps_.write->world.scheduler->WakeAll(flushed_);
  return flushed;
}

void Indexer::OnTreeFlushed(uint64_t sequence) {
  CountDead();
  if (BeginRebuild() || !FlushForTree()) return;
  {
    MutexLock lock(&mutex_);
    flushed_sequence_ = sequence;
  }
  BeginSweep();
}

// Counts tokens that were appended since the last count, and are gone.
void Indexer::CountDead() {
  uint64_t dead = 0;
  {
    const std::lock_guard lock(deps_.write->mutex());
    const uint64_t now = deps_.write->tree().counts().tokens;
    const uint64_t could_be = tokens_before_ + appended_tokens_.exchange(0);
    dead = could_be - std::min(could_be, now);
    tokens_before_ = now;
  }
  if (const std::shared_ptr<Hints> hints = this->hints(); hints != nullptr) hints->AddDead(dead);
}

// Returns whether their tables know all that was committed. Reports the first failure.
bool Indexer::FlushForTree() {
  const std::shared_ptr<Hints> hints = this->hints();
  if (hints == nullptr || rebuilding_ || lost_) return false;
  const Status status = CatchBadAlloc([this] { return FlushAll(); });
  {
    MutexLock lock(&mutex_);
    unnamed_ = !status.ok();
    if (status.ok()) flushed_hints_ = hints;
  }
  if (!status.ok() && !flush_failed_) Report("the index of prefixes is not written: ", status);
  flush_failed_ = !status.ok();
  return status.ok() && !lost_;
}

// Indexes the most of it first, so that little is noted meanwhile and is left for the loop.
Status Indexer::FlushAll() {
  CatchUpAll([] { return true; });
  Status status;
  while (CAIRN_KEPT(kHintsBeforeTree)) {
    {
      const io::Turn::Holder turn(&turn_);
      bool all = false;
      status = Drain(SIZE_MAX, &all);
    }
    // Without the turn: a flush waits while the background is paused.
    const bool full = status.code() == StatusCode::kBusy && IsFull();
    if (status.ok() || full) status = Flush();
    if (!full || !status.ok()) break;
  }
  return status;
}

std::optional<NamedIndex> Indexer::ForManifest(uint64_t sequence) const {
  MutexLock lock(&mutex_);
  if (flushed_hints_ == nullptr || flushed_hints_ != hints_ || flushed_sequence_ < sequence) {
    return std::nullopt;
  }
  return NamedIndex{
      .name = std::string(kHintsName), .derived = true, .tables = hints_->index().live()};
}

bool Indexer::WantTreeFlush(bool at_close) const {
  if (rebuilding_) return false;
  if (lost_) return thread_ != nullptr && !stopping_;
  MutexLock lock(&mutex_);
  return unnamed_ && (at_close || !flush_failed_);
}

// ---------------------------------------------------------------- rebuilding

// When the index of the tree has just got every node.
bool Indexer::BeginRebuild() {
  if (thread_ == nullptr || rebuilding_ || !lost_ || stopping_) return false;
  rebuilding_ = true;
  lost_ = false;
  if (CatchBadAlloc([this] { thread_->Post([this] { Rebuild(); }); }).ok()) return true;
  lost_ = true;
  rebuilding_ = false;
  return false;
}

void Indexer::Rebuild() {
  const Status status = CatchBadAlloc([this] { return RebuildAll(); });
  if (!status.ok()) {
    lost_ = true;  // The next tree flush begins again.
    if (!stopping_) Report("the index of prefixes is not made: ", status);
  }
  {
    MutexLock lock(&mutex_);
    unnamed_ = status.ok();
  }
  rebuilding_ = false;
  if (status.ok()) deps_.write->callbacks->WakeSpaceThread();  // The next manifest names them.
}

// Nodes that are not in the tree's index yet are noted, so they need no look here.
Status Indexer::RebuildAll() {
  std::shared_ptr<sstable::LsmIndex> index;
  {
    const std::lock_guard lock(deps_.write->mutex());
    index = deps_.write->tree().index();
  }
  for (uint64_t from = 1;;) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<uint64_t> nodes,
                           TreeRecords::ReadNodes(*index, from, kRebuildBatch));
    for (size_t begin = 0; begin < nodes.size(); begin += kIndexedTogether) {
      std::vector<Work> some(std::min(nodes.size() - begin, kIndexedTogether));
      for (size_t i = 0; i < some.size(); ++i) some[i].node = nodes[begin + i];
      CAIRN_RETURN_IF_ERROR(RebuildSome(std::move(some)));
    }
    if (nodes.size() < kRebuildBatch) break;
    from = nodes.back() + 1;
  }
  const std::shared_ptr<Hints> hints = this->hints();
  if (hints->filter_ready()) return Status::Ok();
  return hints->FillFilter([this] { return !stopping_; });
}

// As many at a time as there is room for.
Status Indexer::RebuildSome(std::vector<Work> some) {
  while (!some.empty()) {
    CAIRN_RETURN_IF_ERROR(AwaitRoom());
    const io::Turn::Holder turn(&turn_);
    IndexNodes(some);
    std::erase_if(some, [](const Work& one) { return one.status.ok(); });
    for (Work& one : some) {
      if (one.status.code() != StatusCode::kBusy) return one.status;
      one.task = nullptr;
    }
  }
  return Status::Ok();
}

Status Indexer::AwaitRoom() {
  io::Scheduler& scheduler = *deps_.write->world.scheduler;
  while (!stopping_) {
    const uint32_t seen = flushed_.load();
    if (!IsFull()) return Status::Ok();
    deps_.write->callbacks->WakeSpaceThread();
    scheduler.Wait(flushed_, seen, io::kNoDeadline);
  }
  return Status(StatusCode::kCancelled, "closed");
}

// ---------------------------------------------------------------- sweeping

void Indexer::BeginSweep() {
  const std::shared_ptr<Hints> hints = this->hints();
  const uint64_t dead = hints->dead_tokens();
  if (thread_ == nullptr || stopping_ || sweeping_ || dead < kSweptTokensMin) return;
  uint64_t live = 0;
  {
    const std::lock_guard lock(deps_.write->mutex());
    live = deps_.write->tree().counts().tokens;
  }
  if (dead < live / kDeadShare) return;
  sweeping_ = true;
  const Status posted = CatchBadAlloc([&] {
    thread_->Post([this, hints] {
      const Status swept = CatchBadAlloc([&] { return Sweep(hints.get()); });
      if (swept.code() == StatusCode::kCorruption) Discard(*hints, swept);
      sweeping_ = false;
    });
    return Status::Ok();
  });
  if (!posted.ok()) sweeping_ = false;  // The next tree flush tries again.
}

Status Indexer::Sweep(Hints* hints) {
  const uint64_t dead = hints->dead_tokens();
  std::vector<HintEntry> batch;
  Status first;
  CAIRN_RETURN_IF_ERROR(hints->ForEach([&](const HintEntry& entry) {
    batch.push_back(entry);
    if (batch.size() == kSweepBatch) first = SweepBatch(hints, &batch);
    return first.ok();
  }));
  if (first.ok()) first = SweepBatch(hints, &batch);
  if (first.ok()) hints->TakeDead(dead);
  return first;
}

Status Indexer::SweepBatch(Hints* hints, std::vector<HintEntry>* batch) {
  CAIRN_RETURN_IF_ERROR(AwaitRoom());
  std::sort(batch->begin(), batch->end(),
            [](const HintEntry& a, const HintEntry& b) { return a.node < b.node; });
  CAIRN_RETURN_IF_ERROR(Forget(hints, *batch));
  batch->clear();
  return Status::Ok();
}

// Nothing is indexed meanwhile: what is found to be gone stays so until it is forgotten.
Status Indexer::Forget(Hints* hints, std::span<const HintEntry> entries) {
  const io::Turn::Holder turn(&turn_);
  std::vector<HintEntry> gone;
  CAIRN_RETURN_IF_ERROR(FindGone(entries, &gone));
  return gone.empty() ? Status::Ok() : hints->Forget(gone);
}

Status Indexer::FindGone(std::span<const HintEntry> entries, std::vector<HintEntry>* gone) {
  for (size_t begin = 0; begin < entries.size();) {
    TreeNeeds needs;
    size_t end = begin;
    for (; end < entries.size(); ++end) {
      const uint64_t node = entries[end].node;
      if (!needs.nodes.empty() && needs.nodes.back() == node) continue;
      if (needs.nodes.size() == kRebuildBatch) break;
      needs.nodes.push_back(node);
    }
    const WriteDeps& write = *deps_.write;
    Committer::Lock lock(write.mutex());
    CAIRN_RETURN_IF_ERROR(write.access->Load(needs, &lock));
    CAIRN_RETURN_IF_ERROR(write.log->poisoned());  // Else the tree is another soon.
    forgotten_ = write.log->last_reserved_sequence();
    for (; begin < end; ++begin) {
      const HintEntry& entry = entries[begin];
      const Node* const node = write.tree().FindNode(entry.node);
      const bool unwanted = entry.kind == HintKind::kChunk && node != nullptr &&
                            node->use->policy.index != Index::kChunks;
      if (node == nullptr || unwanted || node->lanes[kTokenLane].end < entry.position) {
        gone->push_back(entry);
      }
    }
  }
  return Status::Ok();
}

}  // namespace cairn::engine
