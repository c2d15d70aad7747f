// SPDX-License-Identifier: Apache-2.0
//
// A store that is read only: what following (follow/follower.h) gets of it, and asks of it.
#include <utility>

#include "base/core/check.h"
#include "engine/store_core.h"

namespace cairn {

class StoreCore::FollowSide final : public engine::FollowHost {
 public:
  explicit FollowSide(StoreCore* core) : core_(core) {}

  Status ReadTree(const engine::Manifest& manifest, const wal::RecoveryOptions& recovery,
                  engine::Tree* tree, wal::RecoveredLog* log) override {
    CAIRN_RETURN_IF_ERROR(core_->OpenTree(manifest, tree));
    return core_->Replay(manifest, recovery, tree, log).status();
  }
  Status CheckLogIsWhole(const engine::Manifest& manifest,
                         const wal::RecoveredLog& log) const override {
    return core_->CheckLogIsWhole(manifest, log);
  }
  void SetLogStart(uint64_t segment) override { core_->space_.retirer().SetLogStart(segment); }

 private:
  StoreCore* const core_;
};

engine::Follower::Means StoreCore::MakeFollowMeans() {
  follow_host_ = std::make_unique<FollowSide>(this);
  return {.world = world_,
          .directory = path_,
          .options = &options_,
          .host = follow_host_.get(),
          .manifest = &manifest_,
          .committer = &committer_,
          .reader = &reader_};
}

// Nothing is put into the directory.
Status StoreCore::OpenFollower() {
  auto manifest = engine::ReadManifest(*world_.files, path_);
  if (manifest.status().code() == StatusCode::kNotFound) return NoStoreHere(": no store here");
  if (!manifest.ok()) return manifest.status();
  manifest_.Show(std::move(*manifest), 0);
  CAIRN_RETURN_IF_ERROR(CheckSegmentBytes());
  CAIRN_ASSIGN_OR_RETURN(options_file_, engine::ReadOptionsFile(*world_.files, path_));
  SetTableContext();
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Seen> seen, follower_.LookFirst());
  NoteRecovery(seen->log, seen->whole);
  space_.retirer().SetLogStart(seen->manifest.log_start_segment);
  manifest_.Show(std::move(seen->manifest), seen->log.last_sequence);
  tree_ = std::move(seen->tree);
  return StartLog(std::move(seen->log));
}

Result<RefreshResult> StoreCore::Refresh() {
  const Use use(this);
  CAIRN_RETURN_IF_ERROR(CheckUsable());
  if (!options_.read_only) {
    return Status(StatusCode::kInvalidState, path_ + ": a store that writes shows all there is");
  }
  return follower_.Follow(/*look_anyway=*/false);
}

}  // namespace cairn
