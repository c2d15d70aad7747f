// SPDX-License-Identifier: Apache-2.0
//
// Keeps the hints up to what the tree holds. A commit only notes which node changed and from where
// on; its ids are read back when somebody needs them indexed:
//
//   noted      OnCommitted, live and in a replay                     two numbers per node, for
//                                                                    prefixes, chunks; commit lock
//   caught up  a search, for what came before it; the background,
//              behind an opening, before seals and tree flushes      ids are read, hashed, put
//   flushed    before the manifest that names what was indexed       background/index_flusher.h
//
// So after a crash the hints lack only what the replay reports, and are caught up as ever. Where
// there are none, or they are of no use, a thread of their own rebuilds them from the nodes of the
// tree: until it has finished, answers are not complete. The same thread fills the filter after an
// opening, and sweeps: when a quarter of the tokens that were indexed are gone, entries of nodes
// that are gone, or end before them, are deleted.
//
// A follower uses the hints named by its manifest and indexes the log tail in memory. What a
// refresh replays counts when its tree is shown.
//
// Why it reads the ids back, and is not handed them: a queue of ids needs a bound, so it needs this
// way as well, for what did not fit, and for what is caught up. The ids of an append lie in the hot
// tail; reading 100,000 takes less than hashing them.
//
// Thread-safe, but for Open, Start and Stop. No lock may be held around CatchUp, CatchUpAll,
// Forget and OnTreeFlushed, which read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "engine/commit/commit_observer.h"
#include "engine/commit/write_deps.h"
#include "engine/find/hints.h"
#include "engine/find/index_task.h"
#include "engine/find/path_digests.h"
#include "engine/find/prefix_hash.h"
#include "engine/manifest/manifest.h"
#include "engine/restore/reader.h"

namespace cairn::engine {

class Indexer final : public CommitObserver {
 public:
  // The referenced objects outlive this. `tell` receives a line for people.
  struct Deps {
    const WriteDeps* write = nullptr;
    Reader* reader = nullptr;
    uint64_t memory_bytes = 0;
    std::function<void(const std::string&)> tell{};
  };
  explicit Indexer(Deps deps) : deps_(std::move(deps)) {}
  Indexer(const Indexer&) = delete;
  Indexer& operator=(const Indexer&) = delete;
  ~Indexer() override { Stop(); }

  // --- The opening's. The tree is what was replayed behind the manifest. Hints that are of no use
  // are left out. Never fails: without hints nothing is found. Either is reported.
  void Open(const sstable::TableContext& tables, const Manifest& manifest);
  void Start();  // Begins what is to be done in the background.
  void Stop();   // Idempotent.

  // --- A reader's
  // Before the tree of a refresh is shown: opens the hints of its manifest. `unindexed`: its writer
  // says that it indexes nothing.
  void PrepareShow(const sstable::TableContext& tables, const Manifest& manifest, bool unindexed);
  // It is shown now. Under the commit lock.
  void Show() noexcept;

  // --- CommitObserver, in sequence
  void OnCommitted(const CommittedOp& op) noexcept override;
  bool wants_replay() const override { return true; }
  void OnReplay(uint64_t after_sequence) override;

  // --- For searches
  const StoreId& store() const { return tables_.store; }
  // Null: there are none.
  std::shared_ptr<Hints> hints() const;
  // These were just found damaged: they are given up, and rebuilt.
  void Discard(const Hints& hints, const Status& why);
  // Indexes what was committed before, `nodes_max` nodes at most. Whether everything is indexed
  // then; what cannot be now is tried again the next time.
  bool CatchUp(size_t nodes_max);
  // With all that is noted now, in portions, between which others get a turn and `go_on` is asked.
  void CatchUpAll(const std::function<bool()>& go_on);
  // Deletes those of the entries whose nodes are gone, or end before them. Fails as Hints::Forget
  // does: they stay then.
  Status Forget(Hints* hints, std::span<const HintEntry> entries);
  // The same, without doing anything for it.
  bool complete() const;
  uint64_t behind() const;
  // Also when all that is behind was caught up with.
  bool may_miss() const { return hints() == nullptr || rebuilding_ || lost_; }
  // A reader's, where hints() is null: they never come. Else they are still being made, or it is
  // not known.
  bool unindexed() const { return unindexed_; }
  // Grows, under the commit lock, whenever content of a node is taken away, so that other content
  // may come there. A follower's tree, and one that was rolled back, have another generation.
  uint64_t changes() const { return changes_.load(); }
  // Grows when content becomes another node's: by joins, and by another tree. What was found under
  // the node that had it before is then under one that may not be indexed yet.
  uint64_t moves() const { return moves_.load(); }

  // --- The space thread's
  // A tree flush was applied, up to this sequence. Catches up with all that is in it, and flushes
  // that.
  void OnTreeFlushed(uint64_t sequence);
  // The entry of MANIFEST for the hints when the index of the tree has this sequence. Nothing: the
  // hints do not know all nodes up to there.
  std::optional<NamedIndex> ForManifest(uint64_t sequence) const;
  // The hints use all the memory that they may.
  bool IsFull() const;
  Status Flush();
  // They are to be rebuilt, or are whole, and no manifest says so. A flush that failed is tried
  // again with the tree flushes that come anyway, and at the close.
  bool WantTreeFlush(bool at_close) const;
  // The sequence up to which the log must be durable before a manifest names their tables.
  uint64_t log_needed() const { return log_needed_.load(); }

 private:
  // A noted node while it is indexed.
  struct Work {
    uint64_t node = 0;
    IndexedFrom from{};
    Status status{};  // How it went.
    std::unique_ptr<IndexTask> task{};
    std::vector<TokenId> ids{};
  };
  // Node: from where on. Nodes go from one to another without memory.
  using Noted = std::map<uint64_t, IndexedFrom>;

  void Report(const char* what, const Status& why);
  void RecordChange(uint64_t node, const IndexedFrom& from, uint64_t sequence);
  static void RecordIn(Noted* noted, uint64_t node, const IndexedFrom& from);
  void OnAppend(const CommittedOp& append);
  void OnFill(const CommittedOp& fill);
  void OnTrim(uint64_t node, uint64_t position);
  void OnJoin(const CommittedOp& join);
  void OnPolicy(const CommittedOp& policy);
  Status Drain(size_t nodes_max, bool* all);
  Status DrainTaken(Noted work);
  static Status NoRoom();
  Noted TakeNoted(size_t nodes_max, bool* all);
  void IndexNodes(std::span<Work> all);
  void ReadTogether(std::vector<Work*>* works);
  Status BeginTask(Work* work);
  Result<IndexedNode> ReadFacts(uint64_t node, const IndexedFrom& from);
  Status IndexAlone(Work* work);
  Status ReadAll(IndexTask* task);
  Status AddIds(IndexTask* task, std::span<const TokenId> ids);
  void CountDead();
  bool FlushForTree();
  Status FlushAll();
  bool BeginRebuild();
  void Rebuild();
  Status RebuildAll();
  Status RebuildSome(std::vector<Work> some);
  Status AwaitRoom();
  void BeginSweep();
  Status Sweep(Hints* hints);
  Status SweepBatch(Hints* hints, std::vector<HintEntry>* batch);
  Status FindGone(std::span<const HintEntry> entries, std::vector<HintEntry>* gone);

  PathDigests::Place LastKnown(const IndexedNode& facts, uint64_t at_most);
  void Remember(const IndexedNode& facts, std::span<const PathDigests::Place> places);

  const Deps deps_;
  sstable::TableContext tables_;
  io::Turn turn_{*deps_.write->world.scheduler};  // Held by the thread that indexes.
  std::atomic<uint64_t> changes_{0}, moves_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> flushed_{0};       // Word to wait for: there may be room again.
  std::atomic<bool> rebuilding_{false};    // Under way, or about to be.
  std::atomic<bool> lost_{false};          // Something was not noted: rebuild them.
  std::atomic<bool> flush_failed_{false};  // Reported.
  std::atomic<bool> unindexed_{false};     // As a reader's newest manifest was prepared.
  std::atomic<bool> sweeping_{false};      // Under way, or about to be.
  std::atomic<uint64_t> log_needed_{0};
  std::atomic<uint64_t> forgotten_{0};  // The log's last sequence when entries were found gone.

  mutable Mutex mutex_;  // A leaf, taken under the commit lock.
  std::shared_ptr<Hints> hints_ CAIRN_GUARDED_BY(mutex_);
  // These know all up to the sequence, in tables.
  std::shared_ptr<Hints> flushed_hints_ CAIRN_GUARDED_BY(mutex_);
  uint64_t flushed_sequence_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool unnamed_ CAIRN_GUARDED_BY(mutex_) = false;  // A manifest should name them, and does not.
  Noted noted_ CAIRN_GUARDED_BY(mutex_);
  size_t in_work_ CAIRN_GUARDED_BY(mutex_) = 0;
  PathDigests digests_ CAIRN_GUARDED_BY(mutex_);
  // Policies of namespaces that index less, or more, than prefixes.
  std::map<std::string, Index> policies_ CAIRN_GUARDED_BY(mutex_);
  // Since the last count, and what the tree held then; under the commit lock, but for replays.
  std::atomic<uint64_t> appended_tokens_{0};
  uint64_t tokens_before_ = 0;
  // A reader's. All that a refresh has behind its manifest, and the part of it that was not shown
  // before.
  Noted refreshed_ CAIRN_GUARDED_BY(mutex_), refreshed_new_ CAIRN_GUARDED_BY(mutex_);
  bool refresh_lost_ CAIRN_GUARDED_BY(mutex_) = false;
  uint64_t refreshed_sequence_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Hints> prepared_;  // The same as are shown: they go on.
  std::vector<sstable::LiveTable> prepared_tables_;
  // The tree that searches see has the commits up to this one.
  uint64_t shown_sequence_ CAIRN_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<io::Executor> thread_;
};

// A read of token ids of a node's path, from `begin` on, that counts as none of the caller's.
RestoreItem ItemOfIds(uint64_t node, uint64_t begin, std::span<TokenId> ids);
// Token ids of a node's path, [begin, end), as of one moment. Errors: those of Branch::ReadTokens;
// kBusy with memory_only.
Status ReadIds(Reader* reader, uint64_t node, uint64_t begin, std::span<TokenId> ids,
               bool memory_only);

// Whether a read failed because the node was trimmed or dropped meanwhile.
inline bool MayHaveMoved(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kInvalidArgument;
}

}  // namespace cairn::engine
