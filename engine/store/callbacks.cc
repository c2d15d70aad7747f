// SPDX-License-Identifier: Apache-2.0
//
// Implements the services that parts of a store ask for, and connects the parts.
#include <new>
#include <string>

#include "engine/store/store_core.h"

namespace cairn {

using engine::Committer;
using engine::Head;
using engine::Node;

class StoreCore::WriteSide final : public engine::WriteCallbacks {
 public:
  explicit WriteSide(StoreCore* core) : core_(core) {}

  uint64_t NowNs() const override { return core_->lifecycle_.NowNs(); }
  bool LogIsHeld(uint64_t bytes) const override { return core_->space_.throttle().Holds(bytes); }
  void OnLogged(const wal::Log::Slot& slot, engine::CommitOrigin origin) override {
    core_->space_.OnLogged(slot, origin);
  }
  void OnRefused(const Status& status) override { core_->space_.OnRefused(status); }
  bool HasRoomAgain() override { return core_->space_.requests().HasRoomAgain(); }
  Status WaitForLog(uint64_t bytes, uint64_t deadline_ns) override {
    return core_->space_.throttle().Wait(bytes, deadline_ns);
  }
  Status MakeRoom(std::optional<BranchId> branch, uint64_t bytes, const Status& refusal,
                  uint64_t deadline_ns, std::optional<uint32_t>* first_round) override {
    return core_->space_.requests().MakeRoom(branch, bytes, refusal, deadline_ns, first_round);
  }
  Status AwaitReclaim(const Status& refusal, uint64_t deadline_ns,
                      std::optional<uint32_t>* first_round) override {
    return core_->space_.requests().AwaitReclaim(refusal, deadline_ns, first_round);
  }

  std::shared_ptr<void> Hold() override { return core_->shared_from_this(); }
  void SlowDown(uint64_t bytes, uint64_t deadline_ns) override {
    core_->space_.throttle().SlowDown(bytes, deadline_ns);
  }
  Status WhileRoomIsMade(BranchId branch, uint64_t bytes, const Status& refusal) override {
    return core_->space_.requests().WhileRoomIsMade(branch, bytes, refusal);
  }
  void WakeSpaceThread() override { core_->space_.Wake(); }
  void OnFreed() override { core_->space_.OnFreed(); }
  std::shared_ptr<void> KeepNewestSegment() override {
    return core_->reader_.pins().TakeFrom({engine::Pins::Of::kParts},
                                          core_->space_.newest_segment());
  }
  sstable::TableContext DataTables() override { return core_->space_.DataContext(); }
  void DeleteTable(const engine::TableRef& table) override {
    static_cast<void>(core_->space_.dead_tables().Delete(table.number, table.bytes));
  }

 private:
  StoreCore* const core_;
};

class StoreCore::SpaceSide final : public engine::SpaceCallbacks {
 public:
  explicit SpaceSide(StoreCore* core) : core_(core) {}

  uint64_t NowNs() const override { return core_->lifecycle_.NowNs(); }
  uint64_t opened_wall_ns() const override { return core_->lifecycle_.opened_wall_ns(); }
  Status CheckWritable() const override { return core_->lifecycle_.CheckWritable(); }
  Result<engine::Op> Change(const engine::TreeNeeds& needs, const Resolve& resolve,
                            wal::Log::Purpose purpose) override {
    return core_->changes_.MakeInBackground(needs, resolve, purpose);
  }
  Status ApplyCoalesced(BranchId branch) override {
    return core_->coalesced_.TryFlush(branch, /*stays_if_full=*/true);
  }
  void ApplyAllCoalesced() override { core_->coalesced_.FlushAll(); }
  bool HasCoalesced(BranchId branch) const override { return core_->coalesced_.Has(branch); }
  bool TakeTouched(const Head& object) override {
    return core_->objects_.directory().TakeTouched(object);
  }
  void PublishHint() override { core_->hints_.Publish(); }
  void OnEvent(const std::string& line) override { core_->OnEvent(line); }
  void OnEventOf(const char* what, const Status& status) override {
    core_->OnEventOf(what, status);
  }

 private:
  StoreCore* const core_;
};

// The tree under the commit lock, and the rest of the store, as the reader sees them.
class StoreCore::ReaderSide final : public engine::ReaderCallbacks {
 public:
  explicit ReaderSide(StoreCore* core) : core_(core) {}

  Status VisitBranch(BranchId id, bool used, const Visitor& visit) override {
    const uint64_t now_ns = used ? core_->lifecycle_.NowNs() : 0;
    Committer::Lock lock(core_->committer_.mutex());
    CAIRN_ASSIGN_OR_RETURN(const Head* head, core_->access_.LoadBranch(id, &lock));
    CAIRN_RETURN_IF_ERROR(visit(core_->committer_.tree(), *head));
    if (used) MarkUsed(*head, now_ns);
    return Status::Ok();
  }
  Status VisitNode(NodeId id, const Visitor& visit) override {
    const auto number = static_cast<uint64_t>(id);
    Committer::Lock lock(core_->committer_.mutex());
    CAIRN_RETURN_IF_ERROR(core_->access_.Load(
        {.branches = {}, .nodes = {number}, .names = {}, .decided = true}, &lock));
    const Node* node = core_->committer_.tree().FindNode(number);
    if (node == nullptr) {
      return Status(StatusCode::kNotFound, "there is no node " + std::to_string(number));
    }
    return visit(core_->committer_.tree(), engine::HeadOfNode(*node));
  }
  bool read_only() const override { return core_->options_.read_only; }
  Status FollowWriter() override { return core_->follower_.Refresh(/*read_anyway=*/true).status(); }
  Result<bool> WriterLives() override { return core_->follower_.WriterLives(); }
  Status Pace(uint64_t bytes) override { return core_->space_.rate_limiter().Take(bytes, 0); }

 private:
  // Records that the branch was read. Only stores that may have to evict need that; most do not.
  void MarkUsed(const Head& head, uint64_t now_ns) {
    const bool matters = core_->options_.evict != Evict::kNever || head.keep != Keep() ||
                         head.use->policy != NamespacePolicy();
    if (core_->options_.read_only || !matters) return;
    if (head.reused && now_ns < head.used_at_ns + engine::kUsedGranularityNs) return;
    core_->committer_.tree().MarkUsed(head.id, now_ns);
    const uint64_t last = core_->log_->last_reserved_sequence();
    if (core_->space_.flusher().BecomesDue(last)) core_->space_.Wake();
  }

  StoreCore* const core_;
};

std::unique_ptr<engine::WriteCallbacks> StoreCore::MakeWriteCallbacks() {
  return std::make_unique<WriteSide>(this);
}

engine::WriteDeps StoreCore::MakeWriteDeps() {
  return {.world = world_,
          .options = &options_,
          .callbacks = write_callbacks_.get(),
          .lifecycle = &lifecycle_,
          .committer = &committer_,
          .access = &access_,
          .limits = &limits_,
          .tickets = &tickets_,
          .staging = &staging_,
          .gpus = &gpu_sources_,
          .counters = &call_counters_};
}

std::unique_ptr<engine::Indexer> StoreCore::MakeIndexer() {
  if (options_.index == Index::kNone) return nullptr;
  return std::make_unique<engine::Indexer>(
      engine::Indexer::Deps{.write = &write_means_,
                            .reader = &reader_,
                            .memory_bytes = memory_.prefixes,
                            .tell = [this](const std::string& line) { OnEvent(line); }});
}

engine::SpaceDeps StoreCore::MakeSpaceDeps() {
  space_callbacks_ = std::make_unique<SpaceSide>(this);
  return {.world = world_,
          .directory = path_,
          .options = &options_,
          .callbacks = space_callbacks_.get(),
          .committer = &committer_,
          .access = &access_,
          .ledger = &ledger_,
          .manifest = &manifest_,
          .options_file = &options_file_,
          .reader = &reader_,
          .indexer = indexer_.get(),
          .arena = &arena_};
}

engine::Follower::Deps StoreCore::MakeFollowDeps() {
  return {.world = world_,
          .directory = path_,
          .options = &options_,
          .callbacks = &recovery_,
          .manifest = &manifest_,
          .committer = &committer_,
          .reader = &reader_};
}

// Call when the log is open and its threads run.
void StoreCore::StartParts() {
  write_means_.log = log_.get();
  write_means_.timer = timer_.get();
  write_means_.executor = executor_.get();
  ready_poller_.Start(executor_.get());
  write_means_.ready_poller = &ready_poller_;
  lifecycle_.SetLog(log_.get());
  committer_.SetLog(log_.get());
  access_.SetLog(log_.get());
  limits_.SetLog(log_.get());
  tickets_.Start(log_.get(), timer_.get());
  space_.SetLog(log_.get(), parallel_for_.get());
  hints_.Start(log_.get(), timer_.get(), executor_.get());
  follower_.SetLog(log_.get());
  reader_callbacks_ = std::make_unique<ReaderSide>(this);
  reader_.Start({.callbacks = reader_callbacks_.get(),
                 .log = log_.get(),
                 .executor = executor_.get(),
                 .background = background_executor_.get(),
                 .threads = write_means_.executor_threads});
  reads_.Start();
}

void StoreCore::OnEvent(const std::string& line) {
  if (options_.listener != nullptr && options_.listener->on_event)
    options_.listener->on_event(line);
}

void StoreCore::OnEventOf(const char* what, const Status& status) {
  if (options_.listener == nullptr || !options_.listener->on_event) return;
  try {
    options_.listener->on_event(what + status.ToString());
  } catch (const std::bad_alloc&) {  // The next call gets the error, too.
  }
}

// A disk that does not report its free space refuses when it is full.
uint64_t StoreCore::FreeOnDisk() const {
  const auto space = world_.files->Space(path_);
  return space.ok() ? space->free_bytes : UINT64_MAX;
}

}  // namespace cairn
