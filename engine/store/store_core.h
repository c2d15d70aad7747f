// SPDX-License-Identifier: Apache-2.0
//
// The implementation of Store, Branch, Draft and Ticket. Opens the owners of a store's parts,
// connects them, and closes them. Each part is described in its own folder; here is what needs
// several of them.
//
//   lifecycle   who may call what, and when              commit/lifecycle.h
//   appender    appends and fills                        commit/appender.h
//   changes     create, fork, rewind, drop, ...          commit/changes.h
//   lookup      questions                                lookup.h
//   finder      prefixes                                 find/prefix_finder.h
//   chunks      runs of ids, wherever they stand         find/chunk_finder.h
//   blends      plans that reuse such runs               blend/planner.h
//   composer    prompts of named branches                blend/composer.h
//   reads       restores, prefetches, states             restore/branch_reads.h
//   objects     bytes under keys                         objects/object_space.h
//   space       sealing, giving back, copies             background/space_manager.h
//
// All changes go through the Committer (commit/committer.h), whose lock orders them. Lock order:
// the commit lock -> the log's own -> that of the tickets.
//
// The bodies: open.cc and close.cc; callbacks.cc, what the parts ask of the store; store_core.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/core/block_arena.h"
#include "base/core/mutex.h"
#include "base/io/executor.h"
#include "cairn/store.h"
#include "engine/background/space_manager.h"
#include "engine/blend/composer.h"
#include "engine/blend/planner.h"
#include "engine/commit/appender.h"
#include "engine/commit/changes.h"
#include "engine/commit/coalesced_appends.h"
#include "engine/commit/ledger.h"
#include "engine/commit/write_deps.h"
#include "engine/config/memory_parts.h"
#include "engine/find/chunk_finder.h"
#include "engine/find/indexer.h"
#include "engine/find/prefix_finder.h"
#include "engine/follow/follower.h"
#include "engine/follow/hint_publisher.h"
#include "engine/manifest/manifest_store.h"
#include "engine/metrics/commit_counters.h"
#include "engine/objects/object_space.h"
#include "engine/restore/branch_reads.h"
#include "engine/restore/derived_tables.h"
#include "engine/restore/reader.h"
#include "engine/sessions/sparse/sparse_arena.h"
#include "engine/store/collect_metrics.h"
#include "engine/store/lookup.h"
#include "engine/store/names_taken.h"
#include "engine/store/recovery.h"
#include "wal/log.h"

namespace cairn {

class [[gnu::visibility("hidden")]] StoreCore final
    : public wal::LogObserver,
      public std::enable_shared_from_this<StoreCore> {
 public:
  static Result<std::shared_ptr<StoreCore>> Open(const std::string& path, const Options& options);
  StoreCore(io::World world, std::string path, Options options);
  ~StoreCore() override;
  // Runs every step, even if earlier ones failed, and also without memory.
  Status Close();

  const engine::Lifecycle& lifecycle() const { return lifecycle_; }
  engine::Appender& appender() { return appender_; }
  engine::Changes& changes() { return changes_; }
  engine::Lookup& lookup() { return lookup_; }
  engine::BranchReads& reads() { return reads_; }
  engine::Reader& reader() { return reader_; }
  engine::ObjectSpace& objects() { return objects_; }
  engine::DerivedTables& derived() { return derived_; }
  engine::PrefixFinder& finder() { return finder_; }
  engine::ChunkFinder& chunks() { return chunks_; }
  engine::BlendPlanner& blends() { return blends_; }
  engine::Composer& composer() { return composer_; }
  engine::Leases& leases() { return leases_; }
  engine::SpaceManager& space() { return space_; }
  engine::NamesTaken& imports() { return imports_; }
  engine::StagingPool& staging() { return staging_; }
  const engine::WriteDeps& write_means() const { return write_means_; }
  // kInvalidArgument: the GPU is not one of this store.
  Status CheckGpu(const Gpu& gpu) const;
  SparseArenaState::Deps MakeSparseDeps(std::shared_ptr<StoreCore> self);

  Result<Draft> BeginAppend(BranchId id, uint64_t positions);  // draft.cc
  Result<Store::WriteResult> Write(const WriteBatch& batch, const AppendOptions& options);
  Status Flush();
  Result<RefreshResult> Refresh();
  Status PauseBackground();
  Status ResumeBackground();
  Result<CompletionQueue> NewCompletionQueue();
  Result<VerifyReport> Verify(VerifyLevel level, const VerifyProgress& progress);
  StoreMetrics Metrics();
  Status poisoned() const;
  std::string io_name() const { return std::string(world_.files->name()); }
  std::string sync_method() const;
  std::string recovery_note() const { return recovery_note_; }

  // --- wal::LogObserver
  void OnProgress(uint64_t written_sequence, uint64_t durable_sequence) override;
  void OnPoison(const Status& cause, uint64_t acknowledged) override;
  void OnEvent(const std::string& line) override;

 private:
  // --- callbacks.cc: what the parts ask of the store
  class WriteSide;
  class SpaceSide;
  class ReaderSide;
  std::unique_ptr<engine::WriteCallbacks> MakeWriteCallbacks();
  engine::WriteDeps MakeWriteDeps();
  std::unique_ptr<engine::Indexer> MakeIndexer();
  engine::SpaceDeps MakeSpaceDeps();
  engine::Follower::Deps MakeFollowDeps();
  void StartParts();
  void OnEventOf(const char* what, const Status& status);  // For threads that must not fail.
  uint64_t FreeOnDisk() const;

  // --- open.cc
  Status OpenFiles();
  Status OpenFollower();
  Status CreateFiles();
  Status CheckSegmentBytes() const;
  Status BeginHistory(const wal::RecoveredLog& recovered);
  void RecordRecovery(const wal::RecoveredLog& recovered, const Status& whole,
                      const std::string& lost);
  void SetTableContext();
  Status AdoptTables();
  void TakeRoom(const wal::RecoveredLog& recovered);
  Status StartLog(wal::RecoveredLog recovered);
  void MakeThreads();

  // --- set_aside.cc
  Status SetAsideLog(const wal::RecoveredLog& recovered);
  Status CountLost();
  void SetAsideIndex();

  // --- close.cc
  static void Destroy(StoreCore* core);
  void FlushTreeAtClose();
  Status CloseLog();

  // --- store_core.cc
  void ReloadTree(uint64_t acknowledged);

  io::World world_;
  const std::string path_;
  BlockArena arena_;  // Before the options: their allocator is that of the arena.
  Options options_;
  const engine::MemoryParts memory_;
  MemoryBudget budget_;
  engine::Lifecycle lifecycle_{*world_.scheduler, path_, &options_};
  io::Turn close_turn_{*world_.scheduler};
  Status closed_;  // The result of Close. The turn guards it.

  // --- Files
  sstable::TableCounters table_counters_;
  sstable::BlockCache block_cache_{memory_.index_blocks};
  engine::ManifestStore manifest_;
  engine::StoreOptionsFile options_file_;
  std::unique_ptr<io::FileLock> lock_;
  engine::HintPublisher hints_;
  engine::ByteLedger ledger_;
  std::string recovery_note_;
  engine::Recovery::IndexLoss index_loss_;  // Found by the opening.
  // The bytes of files that were set aside, now or earlier.
  uint64_t lost_bytes_ = 0;
  // Records that the salvage which opened the log left out, and where the log ended then.
  uint64_t left_out_ = 0, left_out_upto_ = 0;

  // --- Writing
  engine::CommitCounters commit_counters_;
  engine::CallCounters call_counters_;
  engine::SparseTotals sparse_totals_;
  std::unique_ptr<engine::WriteCallbacks> write_callbacks_ = MakeWriteCallbacks();
  engine::Committer committer_{write_callbacks_.get(), *world_.scheduler};
  engine::TreeAccess access_{&committer_, &options_};
  engine::AppendLimits limits_{&options_};
  engine::Tickets tickets_{world_, this};
  engine::StagingPool staging_;
  engine::GpuSources gpu_sources_{options_.gpus, world_};
  engine::WriteDeps write_means_{MakeWriteDeps()};
  engine::CoalescedAppends coalesced_{write_means_};
  engine::Appender appender_{write_means_, &coalesced_};
  engine::Changes changes_{write_means_, &coalesced_};
  Mutex poison_mutex_;
  bool poison_told_ CAIRN_GUARDED_BY(poison_mutex_) = false;

  // --- Reading
  std::unique_ptr<engine::ReaderCallbacks> reader_callbacks_;
  engine::Reader reader_{world_,        &arena_,  memory_,
                         options_.gpus, &budget_, [this] { space_.Wake(); }};
  engine::BranchReads reads_{write_means_, &coalesced_, &reader_};
  engine::DerivedTables derived_{write_means_, &coalesced_, &changes_, &reader_};
  engine::Lookup lookup_{write_means_, &coalesced_};
  std::unique_ptr<engine::Indexer> indexer_ = MakeIndexer();  // Null: nothing is indexed.
  engine::Leases leases_{write_means_};
  engine::PrefixFinder finder_{{.write = &write_means_,
                                .coalesced = &coalesced_,
                                .changes = &changes_,
                                .reader = &reader_,
                                .reads = &reads_,
                                .indexer = indexer_.get(),
                                .leases = &leases_}};
  engine::ChunkFinder chunks_{finder_};
  engine::BlendPlanner blends_{&finder_, &chunks_, &manifest_,
                               [this](const std::string& line) { OnEvent(line); }};
  engine::Composer composer_{&blends_};
  engine::NamesTaken imports_;  // Those that run.
  engine::ObjectSpace objects_{write_means_, &appender_, &changes_, &reads_, &leases_, &budget_};

  // --- The background, and following
  std::unique_ptr<engine::SpaceCallbacks> space_callbacks_;
  engine::SpaceManager space_;
  engine::Recovery recovery_;
  engine::Follower follower_;

  // Last, so that they stop first.
  std::unique_ptr<wal::Log> log_;
  std::unique_ptr<engine::Timer> timer_;
  std::unique_ptr<io::Executor> executor_;
  engine::ReadyPoller ready_poller_{world_};
  std::unique_ptr<io::Executor> background_executor_;  // As many threads, for the space thread.
  std::unique_ptr<io::ParallelFor> parallel_for_;      // The same.
};

}  // namespace cairn
