// SPDX-License-Identifier: Apache-2.0
//
// Brings the index up to date with the tree, and then the manifest: tree flushes, in two steps, and
// the merges that keep the index in shape.
//
//   apply     the memory of the index gets all changes at once      commit lock
//   flush     they go into tables of it, which are merged           no lock, paced
//   publish   the manifest names these tables and their content     no lock
//
// Only one of these is under way at a time, except that a merge, which may take long, lets tree
// flushes in:
//
//   kIdle -> kFlushing -> kIdle -> kMerging -> kFlushingInMerge -> kMerging -> kIdle
//
// For the space thread, and after its end for the thread that closes the store; except where
// marked. Errors: those of the index and of the log. After kNoSpace the applied changes stay in
// memory, where they are read, and the next tree flush tries again.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/background/space_deps.h"
#include "engine/commit/commit_observer.h"
#include "engine/manifest/manifest.h"

namespace cairn::engine {

class IndexFlusher final : public CommitObserver {
 public:
  explicit IndexFlusher(const SpaceDeps& deps)
      : deps_(deps), mutex_(deps.mutex()), tree_(deps.tree()) {}
  IndexFlusher(const IndexFlusher&) = delete;
  IndexFlusher& operator=(const IndexFlusher&) = delete;

  // Call between any two steps of the space thread, so that the time that sealing or merging takes
  // bounds neither the length of a replay nor the memory that must be held. Afterwards the tree may
  // have lost entries that are not in use, and has another generation; L records: see
  // Sealer::Seal.
  Status FlushTreeIfDue();
  // Flushes the tree whether due or not. Merges, unless a merge is under way.
  Status FlushTree();

  // Any thread, under the commit lock. Whether a replay up to `sequence` would be longer than one
  // of `records_max` records.
  bool IsDue(uint64_t sequence, uint64_t records_max) const;
  // The same, for the end of the log. True: a tree flush has become due just now.
  bool BecomesDue(uint64_t sequence);
  // For the opening: the index holds everything up to this sequence.
  void SetFlushed(uint64_t sequence) { flushed_sequence_ = sequence; }

  // For the opening: the tables of the index are not, each with those before it, what the manifest
  // says of them (IndexStep). The next manifest says nothing of them.
  void ForgetSteps() { forget_steps_ = true; }

  // --- CommitObserver, under the commit lock: counts the work of a replay, since one record of a
  // batch may hold thousands of ops.
  void OnCommitted(const CommittedOp&) noexcept override {
    replay_ops_.fetch_add(1, std::memory_order_relaxed);
  }
  bool wants_replay() const override { return true; }
  void OnReplay(uint64_t) override { replay_ops_.store(0, std::memory_order_relaxed); }

  // Everything in these segments of the log is in tables, or dead: their L records are needless.
  // REQUIRES: the commit lock.
  void OnSealed(const SegmentSet& segments);

  // Any thread: while tables are held, no tables of the index are deleted. Take a manifest after
  // this call: it names no deleted ones.
  void HoldTables() { holds_.fetch_add(1); }
  void ReleaseTables() { holds_.fetch_sub(1); }

 private:
  enum class State : uint8_t { kIdle, kFlushing, kMerging, kFlushingInMerge };
  // Enters a state, and leaves it at the end of the scope.
  class Step;

  Status ApplyTree(Manifest* manifest);
  Status FlushAndPublish();
  Status FlushTables();
  Status Publish();
  Status Merge();
  Status MergeIndex(sstable::LsmIndex* index, std::vector<uint64_t>* merged);
  Status FlushHintsIfFull();
  void NotifyIndexer(uint64_t sequence);
  Status AwaitLogOfHints();
  void NameHints(Manifest* next) const;
  void NoteStep(uint64_t table, uint64_t in_tables);
  void NameIndex(Manifest* next) const;
  bool is_flushing() const {
    return state_ == State::kFlushing || state_ == State::kFlushingInMerge;
  }
  bool is_merging() const { return state_ == State::kMerging || state_ == State::kFlushingInMerge; }

  const SpaceDeps& deps_;
  std::mutex& mutex_;  // The commit lock.
  Tree& tree_;
  State state_ = State::kIdle;
  // For each tree flush that no manifest names yet, by sequence, the data for its manifest; and for
  // the newest of them that is in tables of the index.
  std::map<uint64_t, Manifest> flushes_;
  uint64_t newest_in_tables_ = 0;
  std::vector<IndexStep> steps_;  // Steps for tables that no manifest names yet.
  bool forget_steps_ = false;
  // Replaced tables of the index, and of the hints, that the manifest may still name.
  std::vector<uint64_t> merged_tables_, merged_hints_;
  std::weak_ptr<Hints> merged_of_;
  bool flushing_hints_ = false;
  std::vector<SegmentSet> sealed_;  // The index may have needless L records of these.
  // Changes since the last tree flush. A replay counts without the lock.
  std::atomic<uint64_t> replay_ops_{0};
  std::atomic<uint64_t> flushed_sequence_{0};
  std::atomic<bool> wanted_{false};
  std::atomic<uint32_t> holds_{0};
};

}  // namespace cairn::engine
