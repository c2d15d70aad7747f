// SPDX-License-Identifier: Apache-2.0
//
// How far the background may go: its rate, its haste, standing still (engine/space/pacer.h), and
// what there is room for.
#include <algorithm>

#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

// Where the index asks for space: so that flushes and merges are paced. Only the space thread does
// them; and whoever closes the store, after it, at full speed.
class StoreCore::PacedHost final : public sstable::TableHost {
 public:
  explicit PacedHost(StoreCore* core) : core_(core) {}

  Result<uint64_t> NewTableNumber() override { return core_->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    if (core_->pacer_.working()) {
      // A merge reads about as much as it writes.
      CAIRN_RETURN_IF_ERROR(core_->pacer_.Take(bytes, bytes));
      CAIRN_RETURN_IF_ERROR(core_->flusher_.DumpIfDue());
    }
    return core_->TakeSpace(bytes);
  }
  void ReturnSpace(uint64_t bytes) override { core_->ReturnSpace(bytes); }

 private:
  StoreCore* const core_;
};

// Where tables of appends ask for space: they are data. What is discarded of them is room.
class StoreCore::DataHost final : public sstable::TableHost {
 public:
  explicit DataHost(StoreCore* core) : core_(core) {}

  Result<uint64_t> NewTableNumber() override { return core_->NewTableNumber(); }
  Status TakeSpace(uint64_t bytes) override {
    const Status taken = core_->ledger_.Take(bytes, wal::Purpose::kData);
    core_->OnRefused(taken);
    return taken;
  }
  void ReturnSpace(uint64_t bytes) override {
    core_->ReturnSpace(bytes);
    core_->KickSpaceIfShort();
  }

 private:
  StoreCore* const core_;
};

// What the background asks of the store.
class StoreCore::SpaceSide final : public engine::SpaceHost {
 public:
  explicit SpaceSide(StoreCore* core) : core_(core) {}

  uint64_t NowNs() const override { return core_->NowNs(); }
  uint64_t opened_wall_ns() const override { return core_->opened_wall_ns_; }
  Status CheckWritable() const override { return core_->CheckWritable(); }
  Result<engine::Op> Change(const engine::TreeNeeds& needs, const Resolve& resolve,
                            wal::Log::Purpose purpose) override {
    return core_->Change(needs, resolve, Durability::kMemory, purpose, /*waits_for_room=*/false);
  }
  Status ApplyJoined(BranchId branch) override {
    return core_->TryFlushJoined(branch, /*stays_if_full=*/true);
  }
  void ApplyAllJoined() override { core_->FlushAllJoined(); }
  bool HasJoined(BranchId branch) const override { return core_->joined_.contains(branch); }
  bool IsIngested(uint64_t bytes) const override { return core_->IsIngested(bytes); }
  void PublishHint() override { core_->PublishHint(); }
  void OnEvent(const std::string& line) override { core_->OnEvent(line); }
  void OnEventOf(const char* what, const Status& status) override {
    core_->OnEventOf(what, status);
  }

 private:
  StoreCore* const core_;
};

void StoreCore::MakeSpace() {
  space_host_ = std::make_unique<SpaceSide>(this);
  means_ = {.world = world_,
            .directory = path_,
            .options = &options_,
            .host = space_host_.get(),
            .committer = &committer_,
            .access = &access_,
            .ledger = &ledger_,
            .manifest = &manifest_,
            .reader = &reader_,
            .gauge = &gauge_,
            .pacer = &pacer_,
            .gate = &log_gate_,
            .signals = &signals_,
            .round = &round_,
            .counters = &space_counters_};
}

void StoreCore::MakeHosts() {
  paced_host_ = std::make_unique<PacedHost>(this);
  data_host_ = std::make_unique<DataHost>(this);
}

sstable::TableContext StoreCore::IndexContext() const {
  sstable::TableContext context = reader_.tables().context();
  context.host = paced_host_.get();
  return context;
}

sstable::TableContext StoreCore::DataContext() const {
  sstable::TableContext context = reader_.tables().context();
  context.host = data_host_.get();
  return context;
}

// Something was freed.
void StoreCore::KickSpaceIfShort() {
  if (space_waits_.exchange(false)) KickSpace();
}

// Something was refused: what there is to give back is given back. Now and then also when that was
// tried and waits for something to be freed itself.
void StoreCore::OnRefused(const Status& status) {
  if (status.code() != StatusCode::kNoSpace) return;
  const uint64_t now_ns = world_.scheduler->MonotonicNs();
  const uint64_t kicked_ns = refused_kick_ns_.load();
  if (space_waits_.load() && now_ns < kicked_ns + engine::kRefusedAgainNs) return;
  refused_kick_ns_.store(now_ns);
  KickSpace();
}

Status StoreCore::PauseBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) {
    pacer_.Pause();
    signals_.EndRound();  // Nobody makes room now: whoever waits for it is told.
    log_gate_.Wake();
  }
  return CheckUsable();
}

Status StoreCore::ResumeBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (options_.read_only || pacer_.Resume()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "the background is not paused");
}

}  // namespace cairn
