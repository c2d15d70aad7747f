// SPDX-License-Identifier: Apache-2.0
//
// Brings the index up to what the tree is, and the checkpoint after it: dumps, in two steps, and
// the merges that keep the index in shape.
//
//   apply     the memory of the index gets what changed, at once    commit lock
//   flush     that goes into tables of it, and those are merged     no lock, paced
//   publish   the checkpoint names the tables, and what they hold   no lock
//
// One thing at a time is under way, but a merge, which may take long, lets dumps come between:
//
//   kIdle -> kDumping -> kIdle -> kMerging -> kDumpingInMerge -> kMerging -> kIdle
//
// The space thread's, and of who closes the store, after it; but for what is marked. Errors: those
// of the index and of the log; kNoSpace leaves what was applied in memory, where it is read, and
// the next dump tries again.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/commit/commit_observer.h"
#include "engine/manifest/manifest.h"
#include "engine/space/space_means.h"

namespace cairn::engine {

class IndexFlusher final : public CommitObserver {
 public:
  explicit IndexFlusher(const SpaceMeans& means)
      : means_(means), mutex_(means.mutex()), tree_(means.tree()) {}
  IndexFlusher(const IndexFlusher&) = delete;
  IndexFlusher& operator=(const IndexFlusher&) = delete;

  // Between any two steps of the space thread, so that neither what an opening replays nor what
  // memory must hold follows from how long sealing or merging takes. The tree is another then, as
  // far as it is not in use, and has another generation; L records: see Sealer::SealUpTo.
  Status DumpIfDue();
  // Whatever is due. Merges, unless a merge is under way.
  Status Dump();

  // Any thread, under the commit lock. Whether a replay up to `sequence` would be more than
  // `records_max` are.
  bool IsDue(uint64_t sequence, uint64_t records_max) const;
  // The same: the log has got so far. True: a dump has become due just now.
  bool BecomesDue(uint64_t sequence);
  // Of the opening: the index holds so much.
  void SetDumped(uint64_t sequence) { dumped_sequence_ = sequence; }

  // --- CommitObserver, under the commit lock: how much a replay would do, since a record of a
  // batch holds thousands of ops.
  void OnCommitted(const CommittedOp&) noexcept override {
    replay_ops_.fetch_add(1, std::memory_order_relaxed);
  }
  bool wants_replay() const override { return true; }
  void OnReplay(uint64_t) override { replay_ops_.store(0, std::memory_order_relaxed); }

  // What the log had up to this segment is in tables: the index may have L records for nothing.
  // REQUIRES: the commit lock.
  void NoteSealed(uint64_t segment);

  // Any thread: while it holds them, no tables of the index are deleted. Who begins to hold them
  // takes a manifest afterwards, which names none that are gone.
  void HoldTables() { holds_.fetch_add(1); }
  void ReleaseTables() { holds_.fetch_sub(1); }

 private:
  enum class State : uint8_t { kIdle, kDumping, kMerging, kDumpingInMerge };
  // Goes from one state into another, and back at its end.
  class Step;

  Status ApplyTree(Manifest* checkpoint);
  Status WriteDump();
  Status FlushTables();
  Status Publish();
  Status Merge();
  Status MergeIndex(sstable::LsmIndex* index, std::vector<uint64_t>* merged);
  Status FlushHintsIfFull();
  void TellIndexer(uint64_t sequence);
  Status AwaitLogOfHints();
  void NameHints(Manifest* next) const;
  bool is_dumping() const { return state_ == State::kDumping || state_ == State::kDumpingInMerge; }
  bool is_merging() const { return state_ == State::kMerging || state_ == State::kDumpingInMerge; }

  const SpaceMeans& means_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  State state_ = State::kIdle;
  // What a checkpoint is to say of dumps that none names yet, by their sequence; and the newest of
  // them that is in tables of the index.
  std::map<uint64_t, Manifest> dumps_;
  uint64_t flushed_dump_ = 0;
  // Of the index, and of the hints; the checkpoint may still name them.
  std::vector<uint64_t> merged_tables_, merged_hints_;
  std::weak_ptr<Hints> merged_of_;
  bool flushing_hints_ = false;
  uint64_t sealed_segment_ = 0;  // The index may have L records up to it, for nothing.
  // Of what changed since the last dump. A replay counts without the lock.
  std::atomic<uint64_t> replay_ops_{0};
  std::atomic<uint64_t> dumped_sequence_{0};
  std::atomic<bool> wanted_{false};
  std::atomic<uint32_t> holds_{0};
};

}  // namespace cairn::engine
