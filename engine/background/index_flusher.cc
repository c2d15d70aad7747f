// SPDX-License-Identifier: Apache-2.0
#include "engine/background/index_flusher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/core/check.h"
#include "base/core/mutation.h"
#include "base/core/out_of_memory.h"
#include "engine/config/constants.h"
#include "engine/tree/records/tree_loader.h"
#include "engine/tree/records/tree_records.h"

namespace cairn::engine {

using Lock = Committer::Lock;

namespace {

// This many ops of a batch take as long to replay as a record of one op: 3 us each (of 200,000
// objects that were put a thousand at a time), while a record must also be found and checked.
constexpr uint64_t kReplayOpsPerRecord = 4;

}  // namespace

class IndexFlusher::Step {
 public:
  Step(IndexFlusher* flusher, State to) : flusher_(flusher), from_(flusher->state_) {
    CAIRN_CHECK((from_ == State::kIdle && (to == State::kFlushing || to == State::kMerging)) ||
                (from_ == State::kMerging && to == State::kFlushingInMerge));
    flusher_->state_ = to;
  }
  ~Step() { flusher_->state_ = from_; }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  IndexFlusher* const flusher_;
  const State from_;
};

// ---------------------------------------------------------------- when

bool IndexFlusher::IsDue(uint64_t sequence, uint64_t records_max) const {
  return sequence - flushed_sequence_ >= records_max ||
         replay_ops_ / kReplayOpsPerRecord >= records_max ||
         tree_.dirty().replay_reads() * kReplayRecordsPerRead >= records_max;
}

bool IndexFlusher::BecomesDue(uint64_t sequence) {
  const bool due = IsDue(sequence, deps_.options->replay_records_max) ||
                   tree_.dirty().count() >= kTreeFlushEntriesMax;
  return due && !wanted_.exchange(true);
}

void IndexFlusher::OnSealed(const SegmentSet& segments) { sealed_.push_back(segments); }

Status IndexFlusher::FlushTreeIfDue() {
  if (!flushing_hints_) CAIRN_RETURN_IF_ERROR(FlushHintsIfFull());
  const bool for_hints =
      deps_.indexer != nullptr && deps_.indexer->WantTreeFlush(/*at_close=*/false);
  if (!wanted_ && !for_hints) return Status::Ok();
  bool due = false, many = false;
  {
    std::lock_guard lock(mutex_);
    const uint64_t share = is_merging() ? kReplayShareInMerge : 1;
    due = for_hints ||
          IsDue(deps_.log->last_reserved_sequence(), share * deps_.options->replay_records_max);
    many = tree_.dirty().count() >= kTreeFlushEntriesMax;
  }
  // While a tree flush is written, new changes only go into memory: else the next tree flush would
  // hold the commit lock for tens of milliseconds. At the cap a tree flush that gives a segment
  // back comes soon, and needs all the room there is.
  if (!due || is_flushing() || flushing_hints_ || deps_.gauge->DataIsShort())
    return many ? ApplyTree(nullptr) : Status::Ok();
  Status status = FlushTree();
  // The step itself may free what is lacking.
  return status.code() == StatusCode::kNoSpace ? Status::Ok() : status;
}

// ---------------------------------------------------------------- tree flushes

Status IndexFlusher::FlushTree() {
  CAIRN_RETURN_IF_ERROR(FlushAndPublish());
  if (is_merging()) return Status::Ok();
  Status merged = Merge();
  if (merged.code() != StatusCode::kCorruption) return merged;
  deps_.round->KeepGoing(std::move(merged));  // No better shape, but the tree flush is done.
  return Status::Ok();
}

// Brings the index's memory up to date with the tree, in one step for readers. If `manifest` is
// given, records sequence, next id and replay start of the same instant in it.
Status IndexFlusher::ApplyTree(Manifest* manifest) {
  sstable::LsmIndex& index = *deps_.index;
  // The tree flush puts again what it needs after this.
  sstable::WriteBatch over = index.NewBatch();
  for (const SegmentSet& segments : sealed_) {
    CAIRN_RETURN_IF_ERROR(TreeRecords::DeleteLogged(index, segments, &over));
  }
  std::vector<uint64_t> gone_tables;
  {
    std::lock_guard lock(mutex_);
    gone_tables.assign(tree_.dirty().gone_tables().begin(), tree_.dirty().gone_tables().end());
  }
  for (const uint64_t table : gone_tables) {
    CAIRN_RETURN_IF_ERROR(TreeRecords::DeleteJoined(index, table, &over));
  }
  Lock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(DecideAll(&tree_, &lock));
  CAIRN_RETURN_IF_ERROR(deps_.log->poisoned());  // Else the tree was replaced.
  sstable::WriteBatch changed = index.NewBatch();
  CAIRN_RETURN_IF_ERROR(TreeRecords::Flush(&tree_, &changed));
  index.Apply(std::move(over));
  index.Apply(std::move(changed));  // At once: the tree counts it as flushed.
  sealed_.clear();
  tree_.residency().Trim(deps_.options->tree_memory_bytes);
  wanted_ = false;
  if (manifest == nullptr) return Status::Ok();
  const uint64_t sequence = deps_.log->last_reserved_sequence();
  manifest->index_sequence = sequence;
  manifest->next_id = tree_.next_id();
  manifest->replay_from = deps_.log->written_end();
  if (const uint64_t parts = deps_.reader->pins().LowestOfParts();
      parts <= manifest->replay_from.segment) {
    manifest->replay_from = {.segment = parts};
  }
  flushed_sequence_ = sequence;
  replay_ops_ = 0;
  tree_.dirty().ForgetReplayReads();
  return Status::Ok();
}

// Brings the index up to date with the tree, and then the manifest. After that the older log is
// needed for content only.
Status IndexFlusher::FlushAndPublish() {
  const Step flushing(this, state_ == State::kMerging ? State::kFlushingInMerge : State::kFlushing);
  // A flush that failed is tried again before there is more to flush: otherwise every failing round
  // would leave a memtable, and each would become a table of its own.
  if (const Status left = FlushTables(); !left.ok()) {
    CAIRN_RETURN_IF_ERROR(ApplyTree(nullptr));
    return left;
  }
  CAIRN_RETURN_IF_ERROR(deps_.log->Flush(io::kNoDeadline));  // So that replay_from can be close.
  Manifest flushed;
  CAIRN_RETURN_IF_ERROR(ApplyTree(&flushed));
  // If a later step fails, the change is in memory, and stays there until the next tree flush makes
  // a manifest. Freeze at once: changes applied during the writes have later sequences.
  CAIRN_RETURN_IF_ERROR(deps_.index->Freeze(flushed.index_sequence).status());
  flushes_.insert_or_assign(flushed.index_sequence, flushed);
  NotifyIndexer(flushed.index_sequence);
  CAIRN_RETURN_IF_ERROR(FlushTables());
  newest_in_tables_ = flushed.index_sequence;  // Even if it brought nothing new.
  CAIRN_RETURN_IF_ERROR(Publish());
  deps_.callbacks->PublishHint();
  return Status::Ok();
}

// Writes what tree flushes brought into the index's memory to its tables.
Status IndexFlusher::FlushTables() {
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const auto flushed, deps_.index->Flush());
    if (!flushed.has_value()) return Status::Ok();
    for (const sstable::LiveTable& table : flushed->edit.added) {
      NoteStep(table.number, newest_in_tables_);
    }
    const auto later = flushes_.upper_bound(flushed->mark);
    if (later != flushes_.begin()) newest_in_tables_ = std::prev(later)->first;
  }
}

// Before this table was made the tables held the tree up to `in_tables`; 0: what the manifest says.
void IndexFlusher::NoteStep(uint64_t table, uint64_t in_tables) {
  if (forget_steps_) return;
  const Manifest named = deps_.manifest->Copy();
  const auto found = flushes_.find(in_tables);
  const Manifest& before = found == flushes_.end() ? named : found->second;
  steps_.push_back({table, before.index_sequence, before.replay_from});
}

void IndexFlusher::NameIndex(Manifest* next) const {
  next->index = deps_.index->live();
  if (forget_steps_) next->steps.clear();
  next->steps.insert(next->steps.end(), steps_.begin(), steps_.end());
  std::erase_if(next->steps, [&](const IndexStep& step) {
    return std::none_of(next->index.begin(), next->index.end(), [&](const auto& table) {
      return table.level == 0 && table.number == step.table;
    });
  });
}

// Publishes the tables of the index, with their content: a tree flush may be in tables already
// without having made its own manifest.
Status IndexFlusher::Publish() {
  CAIRN_RETURN_IF_ERROR(AwaitLogOfHints());
  const auto named = [this] {
    steps_.clear();
    forget_steps_ = false;
    return Status::Ok();
  };
  const auto found = flushes_.find(newest_in_tables_);
  if (found == flushes_.end()) {
    CAIRN_RETURN_IF_ERROR(deps_.manifest->Edit([&](Manifest* next) {
      NameIndex(next);
      NameHints(next);
    }));
    return named();
  }
  const Manifest flushed = found->second;
  // The index must not be ahead of what the log still has after a power loss.
  if (CAIRN_KEPT(kLogBeforeIndex)) {
    CAIRN_RETURN_IF_ERROR(
        deps_.log->Wait(flushed.index_sequence, /*durable=*/true, io::kNoDeadline));
  }
  CAIRN_RETURN_IF_ERROR(deps_.manifest->Edit([&](Manifest* next) {
    NameIndex(next);
    next->index_sequence = next->last_sequence = flushed.index_sequence;
    next->next_id = flushed.next_id;
    next->replay_from = flushed.replay_from;
    NameHints(next);
  }));
  flushes_.erase(flushes_.begin(), flushes_.upper_bound(flushed.index_sequence));
  return named();
}

// ---------------------------------------------------------------- merges

// Brings the index into shape, and the hints. Tree flushes go on meanwhile: taking space for a
// merge calls FlushTreeIfDue.
Status IndexFlusher::Merge() {
  const Step merging(this, State::kMerging);
  CAIRN_RETURN_IF_ERROR(MergeIndex(deps_.index.get(), &merged_tables_));
  if (deps_.indexer == nullptr) return Status::Ok();
  const std::shared_ptr<Hints> hints = deps_.indexer->hints();
  if (hints == nullptr) return Status::Ok();
  // Numbers from a merge of other hints are not these hints'.
  if (merged_of_.lock() != hints) merged_hints_.clear();
  merged_of_ = hints;
  const Status merged = MergeIndex(&hints->index(), &merged_hints_);
  if (merged.code() == StatusCode::kCorruption) deps_.indexer->Discard(*hints, merged);
  return merged.code() == StatusCode::kCorruption ? Status::Ok() : merged;
}

Status IndexFlusher::MergeIndex(sstable::LsmIndex* index, std::vector<uint64_t>* merged) {
  while (true) {
    const auto edit = index->CompactOnce();
    // If there is no room it waits for the next tree flush: giving back does not depend on it.
    const bool no_room = edit.status().code() == StatusCode::kNoSpace;
    if (!edit.ok() && !no_room) return edit.status();
    const bool last = no_room || !edit->has_value();
    if (!last) {
      const std::vector<uint64_t>& removed = (*edit)->removed;
      merged->insert(merged->end(), removed.begin(), removed.end());
    }
    if (!merged->empty()) {
      CAIRN_RETURN_IF_ERROR(Publish());
      index->Release(*merged);
      merged->clear();
    }
    // A reader that begins to hold tables now has a manifest that does not name these. Deletes also
    // those that were held last time.
    if (holds_.load() == 0) deps_.round->KeepGoing(index->DeleteReleased());
    if (last) return Status::Ok();
  }
}

// ---------------------------------------------------------------- hints

Status IndexFlusher::FlushHintsIfFull() {
  if (deps_.indexer == nullptr || !deps_.indexer->IsFull()) return Status::Ok();
  flushing_hints_ = true;
  const Status flushed = deps_.indexer->Flush();
  flushing_hints_ = false;
  // They can be made again: nothing waits for them.
  return flushed.code() == StatusCode::kInvalidState ? flushed : Status::Ok();
}

// If there is no memory they are not named, and the next tree flush tries again.
void IndexFlusher::NotifyIndexer(uint64_t sequence) {
  if (deps_.indexer == nullptr) return;
  flushing_hints_ = true;
  static_cast<void>(CatchBadAlloc([&] { deps_.indexer->OnTreeFlushed(sequence); }));
  flushing_hints_ = false;
}

// Hints lack what was dropped, and have what was appended. They must not know more of either than
// the log has after a power loss: content that is alive again would be missed, and a number that is
// given again is another node.
Status IndexFlusher::AwaitLogOfHints() {
  if (deps_.indexer == nullptr || !CAIRN_KEPT(kLogBeforeIndex)) return Status::Ok();
  const uint64_t sequence = deps_.indexer->log_needed();
  return sequence <= deps_.log->durable_sequence()
             ? Status::Ok()
             : deps_.log->Wait(sequence, /*durable=*/true, io::kNoDeadline);
}

// Names the hints that are at least as new as the index of the tree.
void IndexFlusher::NameHints(Manifest* next) const {
  std::erase_if(next->named, [](const NamedIndex& index) { return index.name == kHintsName; });
  if (deps_.indexer == nullptr) return;
  auto hints = deps_.indexer->ForManifest(next->index_sequence);
  if (hints.has_value()) next->named.push_back(std::move(*hints));
}

}  // namespace cairn::engine
