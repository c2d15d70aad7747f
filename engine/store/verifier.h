// SPDX-License-Identifier: Apache-2.0
//
// Reads the store back from the device and checks what the level asks for. Nothing comes from a
// cache: tables are opened again, and blocks go through a cache of this run. It pins what it reads
// part by part (the log, then one table after the other), so that a store at its cap can still give
// back space.
//
// Any thread, one verifier for each run; the caller holds no lock. Damage is no error but part of
// the report. kStale: the writer beside this reader has moved what was to be verified.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/io/world.h"
#include "cairn/options.h"
#include "cairn/store_types.h"
#include "engine/background/space_manager.h"
#include "engine/commit/committer.h"
#include "engine/follow/follower.h"
#include "engine/manifest/manifest_store.h"
#include "engine/restore/reader.h"
#include "engine/tree/memory/op.h"
#include "wal/log.h"

namespace cairn::engine {

class Verifier {
 public:
  // All outlive the run.
  struct Deps {
    io::World world;
    std::string directory;
    const Options* options = nullptr;
    Committer* committer = nullptr;
    ManifestStore* manifest = nullptr;
    Reader* reader = nullptr;
    SpaceManager* space = nullptr;
    Follower* follower = nullptr;
    const wal::Log* log = nullptr;
  };
  explicit Verifier(Deps from) : from_(std::move(from)) {}

  // `progress` may be empty. Accepted appends are in the log by then.
  Result<VerifyReport> Run(VerifyLevel level, const VerifyProgress& progress);

 private:
  struct Verified;
  struct Found;
  struct Strips;
  Status CheckPart(void (Verifier::*part)(VerifyLevel, Verified*), VerifyLevel level,
                   uint64_t bytes, Verified* all);
  void CheckSmallFiles(VerifyLevel level, Verified* found);
  void CheckLog(VerifyLevel level, Verified* found);
  void CheckSegment(std::span<const Found> records, Verified* found);
  Status CheckRecord(const wal::Location& at, std::span<const std::byte> bytes,
                     Strips* strips) const;
  void CheckIndex(VerifyLevel level, Verified* found);
  Status CheckResting(const wal::RestingSegment& segment, VerifyLevel level, Verified* all);
  Status CheckTable(uint64_t number, VerifyLevel level, std::span<const SealedRange> sealed,
                    Verified* all);

  const Deps from_;
};

}  // namespace cairn::engine
