// SPDX-License-Identifier: Apache-2.0
//
// Reactions to the log's progress and failure; and calls that need several parts.
#include "engine/store/store_core.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "engine/commit/write_batch.h"
#include "engine/store/verifier.h"
#include "engine/tree/memory/reserved_names.h"

namespace cairn {

void StoreCore::OnProgress(uint64_t written_sequence, uint64_t durable_sequence) {
  tickets_.Finish(written_sequence, durable_sequence);
  hints_.PublishSoon(durable_sequence);
}

// Called by any thread that found the failure, the log's as well: running out of memory in here
// must leave no caller waiting.
void StoreCore::OnPoison(const Status& cause, uint64_t acknowledged) {
  OnProgress(acknowledged, log_ == nullptr ? 0 : log_->durable_sequence());
  tickets_.EndByPoison(cause);
  space_.gate().Wake();
  {
    const MutexLock lock(&poison_mutex_);
    if (poison_told_) return;
    poison_told_ = true;
  }
  // During an opening nothing was applied that the log does not have.
  if (lifecycle_.open()) {
    const Status reloaded = CatchBadAlloc([&] { ReloadTree(acknowledged); });
    if (!reloaded.ok()) OnEventOf("reads show what was applied before the log failed: ", reloaded);
  }
  if (options_.listener != nullptr && options_.listener->on_poisoned) {
    options_.listener->on_poisoned(cause);
  }
  CAIRN_CHECK(options_.on_fatal != FatalAction::kAbort);
}

// Memory is ahead of what was acknowledged. The log itself knows the state at that point, so the
// tree is replayed up to there, and reads go on from it.
void StoreCore::ReloadTree(uint64_t acknowledged) {
  engine::Tree tree;
  wal::RecoveredLog recovered;
  wal::RecoveryOptions recovery;
  recovery.read_only = true;  // The device has just failed a write: nothing is synced.
  recovery.salvage = options_.recovery == Recovery::kSetAside;  // Left out again, as at opening.
  recovery.stop_after = acknowledged;
  // Files that space management was about to give back must stay while they are read, and the
  // tables of the index for good: the new tree uses them.
  space_.flusher().HoldTables();
  std::unique_ptr<engine::Pins::Pin> pin;
  engine::Manifest manifest;
  {
    std::lock_guard lock(committer_.mutex());
    pin = reader_.pins().TakeFrom({engine::Pins::Of::kReplay}, space_.log_reclaimer().log_start());
    manifest = manifest_.Copy();
    manifest.log_start_segment =
        space_.log_reclaimer().log_start();  // Segments below may be gone already.
  }
  engine::Recovery::IndexLoss loss;
  Status status = recovery_.OpenTree(&manifest, &tree, &loss);
  // As at the opening, where MANIFEST still names what was lost then; else more is lost by now.
  if (loss.tables.size() > index_loss_.tables.size()) {
    status = Status(StatusCode::kCorruption, loss.note);
  }
  if (status.ok()) {
    const auto left_out = recovery_.Replay(manifest, recovery, &tree, &recovered);
    status = left_out.status();
    if (left_out.ok() && left_out->records > left_out_) {
      status = Status(StatusCode::kCorruption, left_out->note);
    }
  }
  if (status.ok() && recovered.last_sequence < acknowledged) {
    status = Status(StatusCode::kCorruption,
                    "the log ends with sequence " + std::to_string(recovered.last_sequence) +
                        ", but " + std::to_string(acknowledged) + " was acknowledged");
  }
  if (!status.ok()) {
    OnEvent("the tree could not be replayed after the log failed, reads show what was applied: " +
            status.ToString());
    return;
  }
  std::lock_guard lock(committer_.mutex());
  objects_.directory().Close();  // It knows of changes that were taken back.
  committer_.RollBack(std::move(tree));
}

Status StoreCore::Flush() {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckWritable());
  coalesced_.FlushAll();
  CAIRN_RETURN_IF_ERROR(log_->Flush(io::kNoDeadline));
  hints_.Publish();
  return Status::Ok();
}

Result<CompletionQueue> StoreCore::NewCompletionQueue() {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  return CompletionQueue(std::make_shared<CompletionQueueState>(world_));
}

Result<Store::WriteResult> StoreCore::Write(const WriteBatch& batch, const AppendOptions& options) {
  for (const WriteBatch::Op& op : batch.ops()) {
    CAIRN_RETURN_IF_ERROR(engine::CheckNotReserved(op.options.ns));
  }
  Store::WriteResult result;
  // Before the commit: afterwards nothing may fail.
  result.created.reserve(static_cast<size_t>(
      std::count_if(batch.ops().begin(), batch.ops().end(), [](const WriteBatch::Op& op) {
        return op.kind == WriteBatch::Op::Kind::kCreate || op.kind == WriteBatch::Op::Kind::kFork;
      })));
  CAIRN_ASSIGN_OR_RETURN(engine::WrittenBatch written,
                         engine::CommitBatch(write_means_, &coalesced_, this, batch, options));
  for (const BranchId id : written.created) result.created.emplace_back(shared_from_this(), id);
  result.ticket = std::move(written.ticket);
  return result;
}

Result<RefreshResult> StoreCore::Refresh() {
  const engine::Lifecycle::Call call(&lifecycle_);
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  if (!options_.read_only) {
    return Status(StatusCode::kInvalidState, path_ + ": a store that writes shows all there is");
  }
  return follower_.Refresh(/*read_anyway=*/false);
}

Status StoreCore::PauseBackground() {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  if (!options_.read_only) space_.Pause();
  return lifecycle_.CheckUsable();
}

Status StoreCore::ResumeBackground() {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  if (options_.read_only || space_.Resume()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "the background is not paused");
}

Result<VerifyReport> StoreCore::Verify(VerifyLevel level, const VerifyProgress& progress) {
  const engine::Lifecycle::Call call(&lifecycle_);
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  if (level > VerifyLevel::kAll) {
    return Status(StatusCode::kInvalidArgument, "level is none of kHeaders, kIndex and kAll");
  }
  if (!options_.read_only && log_->poisoned().ok()) CAIRN_RETURN_IF_ERROR(Flush());
  engine::Verifier verifier({.world = world_,
                             .directory = path_,
                             .options = &options_,
                             .committer = &committer_,
                             .manifest = &manifest_,
                             .reader = &reader_,
                             .space = &space_,
                             .follower = &follower_,
                             .log = log_.get()});
  return verifier.Run(level, progress);
}

StoreMetrics StoreCore::Metrics() {
  return engine::CollectMetrics({.options = &options_,
                                 .committer = &committer_,
                                 .commits = &commit_counters_,
                                 .calls = &call_counters_,
                                 .tickets = &tickets_,
                                 .reader = &reader_,
                                 .space = &space_,
                                 .objects = &objects_,
                                 .manifest = &manifest_,
                                 .ledger = &ledger_,
                                 .tables = &table_counters_,
                                 .indexer = indexer_.get(),
                                 .finder = &finder_,
                                 .blends = &blends_,
                                 .sparse = &sparse_totals_,
                                 .budget = &budget_,
                                 .path = &path_,
                                 .world = &world_,
                                 .log = log_.get(),
                                 .now_ns = [this] { return lifecycle_.NowNs(); }});
}

Status StoreCore::poisoned() const {
  CAIRN_RETURN_IF_ERROR(lifecycle_.CheckUsable());
  return lifecycle_.PoisonStatus();
}

std::string StoreCore::sync_method() const {
  return options_file_.sync_method == wal::SyncMethod::kDurableWrite ? "dsync" : "fdatasync";
}

Status StoreCore::CheckGpu(const Gpu& gpu) const {
  for (const Gpu& one : options_.gpus) {
    if (one.device() == gpu.device()) return Status::Ok();
  }
  return Status(StatusCode::kInvalidArgument,
                "gpu " + std::to_string(gpu.ordinal()) + " is none of Options::gpus");
}

SparseArenaState::Deps StoreCore::MakeSparseDeps(std::shared_ptr<StoreCore> self) {
  return {.write = &write_means_,
          .coalesced = &coalesced_,
          .reads = &reads_,
          .derived = &derived_,
          .totals = &sparse_totals_,
          .owner = std::move(self)};
}

}  // namespace cairn
