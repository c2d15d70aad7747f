// SPDX-License-Identifier: Apache-2.0
//
// Reads the tree back from the files: the index, and the log behind it. Used by opening, by
// following a writer, and after a failed write of the log.
//
//   the tree as the manifest has it       OpenTree     a few blocks of the index
//   what was logged after it              Replay       headers of the log
//   is that all there should be           CheckLogIsWhole
//
// Keeps no state; the caller brings the tree and holds no lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "cairn/options.h"
#include "engine/background/space_manager.h"
#include "engine/commit/committer.h"
#include "engine/commit/write_deps.h"
#include "engine/find/indexer.h"
#include "engine/follow/follower.h"
#include "engine/manifest/manifest.h"
#include "sstable/index_rescue.h"
#include "wal/log.h"

namespace cairn::engine {

// "a; b", or the one that is not empty.
std::string JoinNotes(const std::string& first, const std::string& second);

class Recovery final : public FollowCallbacks {
 public:
  // All outlive this.
  struct Deps {
    io::World world;
    std::string directory;
    const Options* options = nullptr;
    Committer* committer = nullptr;  // Its observers hear of replayed ops.
    SpaceManager* space = nullptr;
    Indexer* indexer = nullptr;  // Null: no prefixes are indexed.
    CallCounters* counters = nullptr;
  };
  explicit Recovery(Deps deps) : deps_(std::move(deps)) {}

  // Errors of all: kCorruption naming the file, and the errors of file reads. `manifest` becomes
  // the one to replay from. With Recovery::kSetAside this repairs an index that lost tables, in
  // memory alone: it replays the log if that still has its beginning, and else keeps the records
  // that are certain (tree/records/tree_rescue.h). The manifest then names no hints, since hints
  // may lead to what was lost, and `loss` says what was done.
  struct IndexLoss {
    std::vector<sstable::IndexRescue::Lost> tables;
    std::string note;
  };
  Status OpenTree(Manifest* manifest, Tree* tree, IndexLoss* loss) const;
  // Records that a salvage left out. Sets the directory, the store and where the log begins in
  // `recovery`.
  struct LeftOut {
    uint64_t records = 0;
    std::string note;
  };
  Result<LeftOut> Replay(const Manifest& manifest, wal::RecoveryOptions recovery, Tree* tree,
                         wal::RecoveredLog* recovered);
  // The log itself cannot know that its end was taken away, segments and all. Everything up to the
  // manifest's last sequence was durable, and the first segment is older than the manifest.
  Status CheckLogIsWhole(const Manifest& manifest,
                         const wal::RecoveredLog& recovered) const override;

  Status ReadTree(Manifest* manifest, const wal::RecoveryOptions& recovery, Tree* tree,
                  wal::RecoveredLog* log, std::string* note) override;
  void PrepareShow(const Manifest& manifest, const std::optional<Hint>& hint) override;
  void OnShown(uint64_t log_start) override;

 private:
  sstable::LsmOptions IndexOptions() const;
  Status OpenWholeTree(const Manifest& manifest, Tree* tree) const;
  Status RescueIndex(Manifest* manifest, Tree* tree, IndexLoss* loss) const;
  Result<std::optional<IndexStep>> StepTheLogHas(const Manifest& manifest,
                                                 const sstable::IndexRescue& read) const;
  Result<bool> LogHas(const Manifest& manifest, const wal::LogPosition& from) const;

  Deps deps_;
};

}  // namespace cairn::engine
