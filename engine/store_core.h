// SPDX-License-Identifier: Apache-2.0
//
// What stands behind Store, Branch, Draft and Ticket: the tree, the log, and the rules that keep
// them together.
//
// All changes go through the Committer (commit/committer.h), whose lock, `mutex_`, orders them.
// Lock order: mutex_ -> the log's own -> that of the tickets.
//
// The file names tell the parts: open.cc, commit/usable.cc, commit/append.cc,
// commit/large_append.cc, commit/changes.cc, commit/fill.cc, commit/policy.cc, commit/progress.cc,
// restore/restore.cc, follow_side.cc, space_side.cc, lookup.cc.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/core/histogram.h"
#include "base/io/executor.h"
#include "base/io/file_cache.h"
#include "cairn/store.h"
#include "engine/collect_metrics.h"
#include "engine/commit/append_limits.h"
#include "engine/commit/committer.h"
#include "engine/commit/joined_append.h"
#include "engine/commit/kv_layout.h"
#include "engine/commit/ledger.h"
#include "engine/commit/quota.h"
#include "engine/commit/staging.h"
#include "engine/commit/ticket.h"
#include "engine/commit/tickets.h"
#include "engine/commit/timer.h"
#include "engine/commit/tree_access.h"
#include "engine/constants.h"
#include "engine/follow/follower.h"
#include "engine/follow/hint_publisher.h"
#include "engine/manifest/manifest.h"
#include "engine/manifest/manifest_keeper.h"
#include "engine/memory_parts.h"
#include "engine/metrics/commit_counters.h"
#include "engine/restore/reader.h"
#include "engine/space/space_manager.h"
#include "engine/tree/tree.h"
#include "engine/tree/tree_loader.h"
#include "engine/tree/tree_records.h"
#include "wal/log.h"

namespace cairn {

namespace engine {
class LayerWords;
}

class StoreCore final : public wal::LogObserver,
                        public engine::CommitHost,
                        public std::enable_shared_from_this<StoreCore> {
 public:
  static Result<std::shared_ptr<StoreCore>> Open(const std::string& path, const Options& options);
  StoreCore(io::World world, std::string path, Options options);
  ~StoreCore() override;
  Status Close();
  // Every public entry asks before it calls anything else. In a child of fork() no lock may be
  // taken, since a thread of the parent may have held it; and nothing be written that is shared.
  Status CheckProcess() const;
  bool IsInChild() const;

  // --- Store
  Result<ModelId> RegisterModel(const ModelSpec& spec, Durability durability);
  Result<ModelInfo> GetModel(ModelId id);
  std::vector<ModelInfo> Models();
  Result<Branch> CreateBranch(ModelId model, const BranchOptions& options);
  Result<Branch> FindBranch(std::string_view name, std::string_view ns);
  Result<Branch> GetBranch(BranchId id);
  Result<BranchPage> ListBranches(std::string_view ns, std::string_view prefix, size_t limit,
                                  const std::string& cursor);
  Result<std::vector<NamespaceInfo>> Namespaces();
  Status SetNamespace(const std::string& ns, const NamespacePolicy& policy, Durability durability);
  Result<Store::WriteResult> Write(const WriteBatch& batch, const AppendOptions& options);
  Status Flush();
  Result<RefreshResult> Refresh();
  Status Compact() { return space_.Compact(); }
  Result<CheckpointInfo> Checkpoint(const std::string& target, const CheckpointProgress& progress) {
    return space_.checkpoints().Make(target, progress);
  }
  Status PauseBackground();
  Status ResumeBackground();
  Result<CompletionQueue> NewCompletionQueue();
  Result<VerifyReport> Verify(VerifyLevel level, const VerifyProgress& progress);
  StoreMetrics Metrics();
  Status poisoned() const;
  std::string io_name() const { return std::string(world_.files->name()); }
  std::string sync_method() const;
  std::string recovery_note() const { return recovery_note_; }

  // --- Branch
  Result<BranchInfo> Info(BranchId id);
  Result<engine::Head> CopyHead(BranchId id);
  Result<uint64_t> Length(BranchId id);
  Result<uint64_t> DurableLength(BranchId id);
  Result<std::vector<PathStep>> Path(BranchId id);
  // `keep` lives as long as a borrowed source is read. With `version`, kConflict unless the branch
  // has that Head::version.
  Result<Ticket> Append(BranchId id, const Delta& delta, const AppendOptions& options,
                        std::shared_ptr<void> keep, std::optional<uint64_t> version = {});
  Result<uint64_t> AppendSync(BranchId id, const Delta& delta, const AppendOptions& options);
  Result<Draft> BeginAppend(BranchId id, uint64_t positions);
  Status Fill(BranchId id, const KvView& kv, const AppendOptions& options);
  Result<std::vector<KvHole>> EvictedKv(BranchId id, uint64_t begin, uint64_t end);
  Result<uint64_t> RestorableLength(BranchId id, uint64_t at_most);
  Status SetKeep(BranchId id, const Keep& keep, Durability durability);
  Result<Branch> ForkAt(BranchId id, uint64_t position, const BranchOptions& options);
  Status Rewind(BranchId id, uint64_t length, Durability durability);
  Status Rename(BranchId id, const std::string& name, Durability durability);
  Status Drop(BranchId id, Durability durability);
  Result<RestoreResult> Restore(BranchId id, const RestoreRequest& request,
                                LayerProgress* progress);
  Result<Ticket> RestoreAsync(BranchId id, const RestoreRequest& request, LayerProgress* progress);
  // Many sources at once (engine/restore/restore_item.h): one pipeline, one deadline. An error of
  // its own says that the store is closed; how each item went stands in it.
  Status RestoreMany(std::span<engine::RestoreItem> items, uint64_t timeout_ns);
  Status Prefetch(BranchId id, uint64_t begin, uint64_t end);
  Result<std::vector<TokenId>> ReadTokens(BranchId id, uint64_t begin, uint64_t end);
  Result<Branch::StateAt> StateAt(BranchId id, uint64_t position, bool sampler);
  Result<std::vector<ContentSpan>> Spans(BranchId id, uint64_t begin, uint64_t end);
  engine::StagingPool& staging() { return staging_; }

  // --- wal::LogObserver
  void OnProgress(uint64_t written_sequence, uint64_t durable_sequence) override;
  void OnPoison(const Status& cause, uint64_t acknowledged) override;
  void OnEvent(const std::string& line) override;
  void OnEventOf(const char* what, const Status& status);  // For threads that must not fail.

  // --- engine::CommitHost
  // The wall clock as it would be if nobody had set it since the store was opened: what is written
  // down, and what expiry and the order of eviction go by.
  uint64_t NowNs() const override;
  // Data that the log's limit holds is kBusy, as where its memory is full.
  bool LogIsHeld(uint64_t bytes) const override { return space_.throttle().Holds(bytes); }
  void OnLogged(const wal::Log::Slot& slot) override { space_.OnLogged(slot); }
  void OnRefused(const Status& status) override { space_.OnRefused(status); }
  Status WaitForLog(uint64_t bytes, uint64_t deadline_ns) override {
    return space_.throttle().Wait(bytes, deadline_ns);
  }
  Status MakeRoom(std::optional<BranchId> id, uint64_t bytes, const Status& refusal,
                  uint64_t deadline_ns, std::optional<uint32_t>* first_round) override {
    return space_.asks().MakeRoom(id, bytes, refusal, deadline_ns, first_round);
  }
  Status AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                      std::optional<uint32_t>* first_round) override {
    return space_.asks().AwaitReclaim(refusal, deadline_ns, first_round);
  }

 private:
  // --- open.cc
  Status OpenFiles();
  Status CreateFiles();
  Status CheckDirectoryIsFree();
  Status NoStoreHere(const std::string& why);
  Status CheckSegmentBytes() const;
  // How many records a salvage left out.
  Result<uint64_t> Replay(const engine::Manifest& manifest, wal::RecoveryOptions recovery,
                          engine::Tree* tree, wal::RecoveredLog* recovered);
  Status BeginHistory(const wal::RecoveredLog& recovered);
  // What of `recovered` is told to users. `whole`: what CheckLogIsWhole says of it.
  void NoteRecovery(const wal::RecoveredLog& recovered, const Status& whole);
  Status CheckLogIsWhole(const engine::Manifest& manifest,
                         const wal::RecoveredLog& recovered) const;
  Status StartLog(wal::RecoveredLog recovered);
  Status WriteCheckpoint();
  void DumpAtClose();
  Status CloseLog();
  static void Destroy(StoreCore* core);
  Status CheckUsable() const;                            // Open.
  static Status CheckDurability(Durability durability);  // The level is one that exists.
  // And neither read-only nor poisoned.
  Status CheckWritable() const { return CheckWritable(Durability::kPower); }
  Status CheckWritable(Durability durability) const;
  Status CheckWritable(const AppendOptions& options) const;
  Status PoisonStatus() const;  // kPoisoned with the cause, or Ok.
  // Held by calls that use the executor, which ends in Close: that waits for them.
  class Use {
   public:
    explicit Use(StoreCore* core);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    StoreCore* const core_;
  };
  uint64_t Deadline(uint64_t timeout_ns) const;

  using Lock = engine::Committer::Lock;
  // The branch and its path, for whoever reads: what was accepted for it is applied, and the lock
  // is taken. kNotFound.
  Result<const engine::Head*> LookAt(BranchId id, Lock* lock);

  // --- commit/append.cc
  using Applied = engine::Applied;
  // What the branch must be for an append to be applied.
  struct Expected {
    std::optional<uint64_t> length;
    std::optional<uint64_t> version;  // Head::version; drafts.
    bool joined = false;              // Its room was taken when it was accepted.
  };
  // What a delta is checked for before any lock: shapes, emptiness, its model.
  Result<std::shared_ptr<const ModelSpec>> CheckDelta(BranchId id, const Delta& delta,
                                                      const AppendOptions& options, bool fill,
                                                      bool* keeps_kv);
  // What of a large append was written before the record that makes it count.
  struct Written {
    std::vector<engine::Part> parts;  // In the log...
    uint64_t unit = 0;
    engine::OpTable table;  // ...or in a snapshot table.
    std::vector<engine::SealedRange> ranges;
    uint64_t kv_bytes = 0;  // Raw.
  };
  class AppendResolver;  // commit/append_resolver.h
  // One record.
  Result<Applied> AppendRecord(BranchId id, const Delta& delta, const Expected& expected,
                               const ModelSpec& model, engine::RetryPolicy policy);
  // Whatever its size; waits for room that eviction makes.
  Result<Applied> AppendWithRoom(BranchId id, const Delta& delta, const Expected& expected,
                                 const ModelSpec& model, uint64_t deadline_ns);
  Result<Ticket> AppendShedding(BranchId id, const Delta& delta, const AppendOptions& options,
                                const Expected& expected, const Status& cause);
  Status CheckExpected(const engine::Head& head, const Expected& expected) const;

  engine::NewTicket MakeTicket(const AppendOptions& options, uint64_t started_ns);

  // --- commit/large_append.cc
  Result<Applied> AppendLarge(BranchId id, const Delta& delta, const Expected& expected,
                              const ModelSpec& model, uint64_t deadline_ns);
  Result<Applied> AppendGathered(BranchId id, const Delta& delta, const Expected& expected,
                                 const ModelSpec& model, uint64_t length, uint64_t deadline_ns,
                                 TicketState* ticket);
  Result<Applied> AppendIngested(BranchId id, const Delta& delta, const Expected& expected,
                                 const ModelSpec& model, uint64_t length, uint64_t node,
                                 uint64_t deadline_ns, TicketState* ticket);
  Result<Applied> AppendLast(BranchId id, const Delta& delta, const Expected& expected,
                             engine::DeltaPayload* payload, const Written& written,
                             uint64_t deadline_ns);
  class PartResolver;
  Result<Applied> AppendParts(BranchId id, const Delta& delta, const Expected& expected,
                              const ModelSpec& model, uint64_t length, uint64_t deadline_ns,
                              TicketState* ticket);
  Result<engine::Part> WritePart(const ModelSpec& model, const Delta& delta,
                                 const engine::DeltaWindow& window, uint64_t length_before,
                                 uint64_t unit, uint64_t deadline_ns, TicketState* ticket,
                                 uint64_t* sequence, uint64_t* kv_bytes);
  Result<Ticket> AppendBorrowed(BranchId id, const Delta& delta, const AppendOptions& options,
                                const Expected& expected, std::shared_ptr<const ModelSpec> model,
                                std::shared_ptr<void> keep, bool kv_shed);
  Result<Ticket> PostGathered(BranchId id, const Delta& delta, const AppendOptions& options,
                              const Expected& expected, uint64_t length,
                              std::shared_ptr<const ModelSpec> model, std::shared_ptr<void> keep,
                              bool kv_shed);
  // `bytes` are to go into the log.
  Result<uint64_t> BeginLargeAppend(BranchId id, uint64_t bytes, const Expected& expected,
                                    bool wait, uint64_t deadline_ns);
  uint64_t LogBytesOfLarge(const ModelSpec& model, const Delta& delta) const;

  // --- commit/joined_append.cc: delta_batch_tokens
  // Nothing when the delta cannot be joined and goes its own way.
  std::optional<Result<Ticket>> AppendJoined(BranchId id, const Delta& delta,
                                             const AppendOptions& options,
                                             std::shared_ptr<const ModelSpec> model, bool kv_shed);
  // kBusy: not now. With `stays_if_full` what there is no room for is not ended with kNoSpace.
  Status TryFlushJoined(BranchId id, bool stays_if_full = false);
  Status FlushJoinedWithRoom(BranchId id, uint64_t deadline_ns);
  Status FlushJoined(BranchId id);
  void FlushAllJoined();
  // The same for Close. What there is no memory to flush ends with kOutOfMemory, which is told.
  Status EndAllJoined();
  bool FlushJoinedTo(std::span<const uint64_t> branches, Lock* lock);
  engine::Timer::Entry FlushLater(BranchId id);

  // --- commit/policy.cc, commit/fill.cc
  void NoteUsed(const engine::Head& head, uint64_t now_ns);
  class FillResolver;
  Result<uint64_t> FillNext(BranchId id, const Delta& delta, size_t view_index, uint64_t* from,
                            const ModelSpec& model, const AppendOptions& options,
                            uint64_t deadline_ns);

  // --- commit/changes.cc: one op, or a batch of them, without payload of their own
  using Resolve = std::function<Result<engine::Op>(const engine::Tree&)>;
  class ChangeResolver;
  Result<engine::Op> Change(const engine::TreeNeeds& needs, const Resolve& resolve,
                            Durability durability, wal::Log::Purpose purpose,
                            bool waits_for_room = true);
  Result<Branch> FinishBranch(Result<engine::Op> op);
  class BatchResolver;

  // --- restore/restore.cc
  class ReaderSide;
  void StartReader();
  Result<RestoreResult> RestoreLayers(BranchId id, const RestoreRequest& request,
                                      engine::LayerWords* layers, const TicketState* ticket);
  Status PrefetchNow(BranchId id, uint64_t begin, uint64_t end);

  // --- follow_side.cc: reading beside a writer
  class FollowSide;
  engine::Follower::Means MakeFollowMeans();
  Status OpenFollower();

  // --- open_tables.cc
  void SetTableContext();
  Status OpenTree(const engine::Manifest& manifest, engine::Tree* tree);
  const StoreId& store_id() const { return reader_.tables().context().store; }
  Status ClaimTables();

  // --- space_side.cc
  class SpaceSide;
  engine::SpaceMeans MakeSpaceMeans();
  uint64_t FreeOnDisk() const;

  // --- commit/progress.cc
  void ReloadTree(uint64_t acknowledged);

  io::World world_;
  const std::string path_;
  Options options_;
  const engine::MemoryParts memory_;
  MemoryBudget budget_;
  const uint64_t process_id_ = world_.scheduler->ProcessId();
  const uint64_t opened_wall_ns_ = world_.scheduler->WallNs();
  const uint64_t opened_ns_ = world_.scheduler->MonotonicNs();
  std::atomic<bool> open_{false};
  io::Turn close_turn_{*world_.scheduler};
  Status closed_;  // What Close returned. The turn guards it.
  std::atomic<uint32_t> uses_{0};
  std::atomic<uint32_t> prefetches_waiting_{0};  // Or running.
  sstable::TableCounters table_counters_;
  engine::ManifestKeeper manifest_;
  engine::StoreOptionsFile options_file_;
  std::string recovery_note_;
  // Of the log, how many records the salvage that opened it left out, and where it ended then.
  uint64_t left_out_ = 0, left_out_upto_ = 0;
  std::unique_ptr<io::FileLock> lock_;
  engine::HintPublisher hints_;
  engine::ByteLedger ledger_;
  engine::StagingPool staging_;

  engine::CommitCounters commit_counters_;
  engine::Committer committer_{this, *world_.scheduler};
  std::mutex& mutex_ = committer_.mutex();  // Guards those below.
  engine::Tree& tree_ = committer_.tree();
  engine::TreeAccess access_{&committer_, &options_};
  std::map<BranchId, std::unique_ptr<engine::Joined>> joined_;
  std::atomic<uint32_t> joined_count_{0};

  engine::AppendLimits limits_{&options_};
  engine::Tickets tickets_{world_, this};

  std::mutex poison_mutex_;
  bool poison_told_ = false;

  engine::CallCounters counters_;

  std::unique_ptr<engine::ReaderHost> reader_host_;
  engine::Reader reader_{world_, options_.allocator, memory_, &budget_, [this] { space_.Kick(); }};
  sstable::BlockCache block_cache_{memory_.index_blocks};
  std::unique_ptr<engine::SpaceHost> space_host_;
  engine::SpaceManager space_;
  std::unique_ptr<engine::FollowHost> follow_host_;
  engine::Follower follower_;

  engine::MemoryLine ingest_line_{*world_.scheduler, memory_.ingests, &budget_};

  // Last, so that they stop first.
  uint32_t executor_threads_ = 1;
  std::unique_ptr<wal::Log> log_;
  std::unique_ptr<engine::Timer> timer_;
  std::unique_ptr<io::Executor> executor_;
  std::unique_ptr<io::Executor> prefetch_executor_;    // One thread, once there is a hint.
  std::unique_ptr<io::Executor> background_executor_;  // As many threads, for the space thread.
  std::unique_ptr<io::ParallelFor> parallel_for_;      // The same.
};

}  // namespace cairn
