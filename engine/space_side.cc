// SPDX-License-Identifier: Apache-2.0
//
// What the background (space/space_manager.h) gets of the store, and asks of it.
#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

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
  bool IsIngested(uint64_t bytes) const override { return core_->limits_.IsIngested(bytes); }
  void PublishHint() override { core_->hints_.Publish(); }
  void OnEvent(const std::string& line) override { core_->OnEvent(line); }
  void OnEventOf(const char* what, const Status& status) override {
    core_->OnEventOf(what, status);
  }

 private:
  StoreCore* const core_;
};

engine::SpaceMeans StoreCore::MakeSpaceMeans() {
  space_host_ = std::make_unique<SpaceSide>(this);
  return {.world = world_,
          .directory = path_,
          .options = &options_,
          .host = space_host_.get(),
          .committer = &committer_,
          .access = &access_,
          .ledger = &ledger_,
          .manifest = &manifest_,
          .options_file = &options_file_,
          .reader = &reader_};
}

Status StoreCore::PauseBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) space_.Pause();
  return CheckUsable();
}

Status StoreCore::ResumeBackground() {
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (options_.read_only || space_.Resume()) return Status::Ok();
  return Status(StatusCode::kInvalidState, "the background is not paused");
}

}  // namespace cairn
