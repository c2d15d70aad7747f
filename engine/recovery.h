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
#include <string>

#include "base/io/world.h"
#include "cairn/options.h"
#include "engine/commit/committer.h"
#include "engine/commit/write_means.h"
#include "engine/follow/follower.h"
#include "engine/manifest/manifest.h"
#include "engine/reuse/indexer.h"
#include "engine/space/space_manager.h"
#include "wal/log.h"

namespace cairn::engine {

class Recovery final : public FollowHost {
 public:
  // All outlive this.
  struct Means {
    io::World world;
    std::string directory;
    const Options* options = nullptr;
    Committer* committer = nullptr;  // Its observers are told of what is replayed.
    SpaceManager* space = nullptr;
    Indexer* indexer = nullptr;  // Null: no prefixes are indexed.
    CallCounters* counters = nullptr;
  };
  explicit Recovery(Means means) : means_(std::move(means)) {}

  // Errors of all: kCorruption naming the file, and the errors of file reads.
  Status OpenTree(const Manifest& manifest, Tree* tree) const;
  // Returns how many records a salvage left out. Sets the directory, the store and where the log
  // begins in `recovery`.
  Result<uint64_t> Replay(const Manifest& manifest, wal::RecoveryOptions recovery, Tree* tree,
                          wal::RecoveredLog* recovered);
  // The log itself cannot know that its end was taken away, segments and all. Everything up to the
  // manifest's last sequence was durable, and the first segment is older than the manifest.
  Status CheckLogIsWhole(const Manifest& manifest,
                         const wal::RecoveredLog& recovered) const override;

  Status ReadTree(const Manifest& manifest, const wal::RecoveryOptions& recovery, Tree* tree,
                  wal::RecoveredLog* log) override {
    CAIRN_RETURN_IF_ERROR(OpenTree(manifest, tree));
    return Replay(manifest, recovery, tree, log).status();
  }
  void PrepareShow(const Manifest& manifest) override;
  void OnShown(uint64_t log_start) override;

 private:
  Means means_;
};

}  // namespace cairn::engine
